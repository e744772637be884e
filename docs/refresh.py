"""Put measured numbers into the docs: ``python -m docs.refresh [RUN ...]``.

The text between ``<!-- begin: TITLE -->`` and ``<!-- end: TITLE -->`` in a page or the README is replaced by the
section of that title of `benchmarks/RESULTS.md`. Some titles ask for a RUN:

- `reproduction of bo4sc`: the folder of a finished `selfcal reproduce` of that name, whose figures are copied too;
- `Quality: ranks` and the like: a JSON file of `benchmarks.quality`; several are combined, seeds from 100 on are
  left out, and a section of which nothing was measured stays as it is;
- `output of selfcal inspect diabetes` and the like: the table of the Pima diabetes data, on which the command is run;
- `session in a terminal of 80 columns`: the same table; needs tmux.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docs.outputs import outputs
from docs.trial import sessions
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
    readme = HERE.parent / "README.md"
    pages = {page: page.read_text() for page in [*HERE.glob("[!_]*/*.md"), *[readme] * readme.exists()]}
    files = [run for run in runs if run.is_file()]
    measured = [file for file in files if file.suffix == ".json"]
    if measured:
        texts |= quality([row for file in measured for row in json.loads(file.read_text())["rows"]])
    for table in (file for file in files if file not in measured):
        titles = [found[1] for text in pages.values() for found in MARKED.findall(text)]
        texts |= outputs(titles, table) | sessions(titles, table)
    for run in (run for run in runs if run not in files):
        name = json.loads((run / "results.json").read_text())["settings"]["experiment"]
        texts[f"reproduction of {name}"] = (run / "table.md").read_text()
        for figure in run.glob("*.png"):
            shutil.copyfile(figure, HERE / "figures" / figure.name)
    for page, text in pages.items():
        page.write_text(
            MARKED.sub(
                lambda m: f"{m[1]}\n{texts[m[2]].strip()}\n\n{m[3]}" if m[2] in texts else m[0],
                text,
            )
        )


def quality(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The sections of the quality benchmark, but for what was not measured; its picture is drawn, too."""
    from benchmarks._quality_board import is_reported

    from benchmarks import _quality_tables as tables

    rows = [row for row in rows if is_reported(row)]
    figure = tables.picture(rows)
    if figure is not None:
        save_figure(figure, HERE / "figures" / tables.PICTURE)
        (HERE / "figures" / f"{tables.PICTURE}.svg").unlink()  # the pages show the other
    return {title: text for title, text in tables.sections(rows).items() if text != tables.NOTHING}


if __name__ == "__main__":
    refresh(*map(Path, sys.argv[1:]))
