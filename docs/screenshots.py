"""Take screenshots of a report for the docs: ``python -m docs.screenshots demo/report.html``; needs Chromium."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).parent / "figures"
PARTS = {
    "report-verdict": ("light", 1160, None, 665),
    "report-reliability": ("light", 1160, "#reliability", 740),
    "report-reject": ("dark", 1000, "#reject", 870),
}
"""Colour scheme, width, the part (the top of the page if None) and the most of its height, by file name."""


def photograph(report: Path) -> None:
    """Write the pictures into `docs/figures`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (scheme, width, part, height) in PARTS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            box = {"x": 0, "y": 0, "width": width, "height": height}
            if part:
                place = page.locator(part).bounding_box()
                box |= {"y": place["y"] - 20, "height": min(height, place["height"] + 40)}
            page.screenshot(path=FIGURES / f"{name}.png", clip=box, full_page=True)
        browser.close()


if __name__ == "__main__":
    photograph(Path(sys.argv[1]))
