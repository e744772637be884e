"""Put the tables and figures of a finished reproduction into the docs: ``python -m docs.refresh runs/bo4sc``."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = ("figure-1-confidence", "figure-2-reliability", "figure-3-weights")


def refresh(run: Path) -> None:
    """Replace what stands between the markers of `bo4sc.md`, and copy the figures."""
    page = HERE / "bo4sc.md"
    table = (run / "table.md").read_text()
    marked = re.compile(r"(<!-- table -->\n).*?(<!-- end of table -->)", re.DOTALL)
    page.write_text(marked.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page.read_text()))
    for name in FIGURES:
        shutil.copyfile(run / f"{name}.png", HERE / "figures" / f"{name}.png")


if __name__ == "__main__":
    refresh(Path(sys.argv[1]))
