"""Put measured numbers into the docs: ``python -m docs.refresh [RUN ...]``.

What stands between ``<!-- begin: TITLE -->`` and ``<!-- end: TITLE -->`` is replaced by the section of that title
of `benchmarks/RESULTS.md`, or, for a title like `reproduction of bo4sc`, by the table of a finished
`selfcal reproduce` of that name in a folder RUN, whose figures are copied too. If a RUN is a file, it is the table of
the Pima diabetes data, and titles like `output of selfcal inspect diabetes` are replaced by what that command prints.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from docs.outputs import outputs

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
    pages = {page: page.read_text() for page in HERE.glob("*.md")}
    for run in runs:
        if run.is_file():
            texts |= outputs((found[1] for text in pages.values() for found in MARKED.findall(text)), run)
            continue
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


if __name__ == "__main__":
    refresh(*map(Path, sys.argv[1:]))
