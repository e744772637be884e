"""Put measured numbers into the docs: ``python -m docs.refresh [RUN ...]``.

What stands between ``<!-- begin: TITLE -->`` and ``<!-- end: TITLE -->`` in a page or the README is replaced by the
section of that title of `benchmarks/RESULTS.md`, or, for a title like `reproduction of bo4sc`, by the table of a
finished `selfcal reproduce` of that name in a folder RUN, whose figures are copied too, or, for a title like
`Quality: ranks`, by a section worked out from RUN, a JSON file of `benchmarks.quality`; several are put together.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from selfcal.plots import save_figure

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "RESULTS.md"
MARKED = re.compile(r"(<!-- begin: (.+?) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)


def sections() -> dict[str, str]:
    """The benchmark results by title; none before the first `make bench`."""
    if not RESULTS.exists():
        return {}
    found = re.split(r"^# ", RESULTS.read_text(), flags=re.MULTILINE)[1:]
    return {title: body for title, _, body in (part.partition("\n") for part in found)}


def refresh(*runs: Path) -> None:
    """Refresh every page."""
    texts = sections()
    files = [run for run in runs if run.is_file()]
    if files:
        texts |= quality([row for file in files for row in json.loads(file.read_text())["rows"]])
    for run in (run for run in runs if run not in files):
        name = json.loads((run / "results.json").read_text())["settings"]["experiment"]
        texts[f"reproduction of {name}"] = (run / "table.md").read_text()
        for figure in run.glob("*.png"):
            shutil.copyfile(figure, HERE / "figures" / figure.name)
    readme = HERE.parent / "README.md"
    for page in [*HERE.glob("*.md"), *[readme] * readme.exists()]:
        page.write_text(
            MARKED.sub(
                lambda m: f"{m[1]}\n{texts[m[2]].strip()}\n\n{m[3]}" if m[2] in texts else m[0],
                page.read_text(),
            )
        )


def quality(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The sections of the quality benchmark; its picture is drawn, too."""
    from benchmarks import _quality_tables as tables

    figure = tables.picture(rows)
    if figure is not None:
        save_figure(figure, HERE / "figures" / tables.PICTURE)
        (HERE / "figures" / f"{tables.PICTURE}.svg").unlink()  # the pages show the other
    return tables.sections(rows)


if __name__ == "__main__":
    refresh(*map(Path, sys.argv[1:]))
