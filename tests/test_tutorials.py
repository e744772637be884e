"""Every tutorial runs from top to bottom, as a notebook would run it, without any notebook."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
TUTORIALS = sorted(page for page in FOLDER.glob("*.md") if page.stem != "index")
CELL = re.compile(r"^```\{code-cell\} ipython3\n(?::tags:[^\n]*\n)?\n?(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNER = """
import sys
cells = open(sys.argv[1]).read().split("\\x00")
if __name__ == "__main__":
    for number, cell in enumerate(cells, start=1):
        exec(compile(cell, f"cell {number}", "exec"), globals())
"""


def cells(page):
    """The code of each cell in plain Python: magics for the shell and for files become calls, others are left out."""
    return [plain(code) for code in CELL.findall(page.read_text())]


def plain(code):
    first, _, rest = code.partition("\n")
    if first == "%%bash":
        return (
            f"import subprocess\nsubprocess.run(['bash', '-e', '-o', 'pipefail', '-c', {rest!r}], check=True)"
        )
    if first.startswith("%%writefile "):
        return f"open({first.split()[1]!r}, 'w').write({rest!r})"
    return re.sub(r"^%.*$", "", code, flags=re.MULTILINE)


def test_there_are_tutorials():
    assert len(TUTORIALS) == 5


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_cell_is_read_and_compiles(page):
    read = cells(page)
    assert len(read) == page.read_text().count("```{code-cell}")
    for code in read:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            compile(code, page.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_tutorial_runs_without_warnings(page, tmp_path):
    """In a process of its own, whose workers can import the main module."""
    script, code = tmp_path / "run.py", tmp_path / "cells"
    script.write_text(RUNNER)
    code.write_text("\x00".join(cells(page)))
    if "distributed" in page.read_text():
        pytest.importorskip("distributed")
        pytest.importorskip("optuna")
    subprocess.run([sys.executable, "-W", "error::UserWarning", script, code], cwd=tmp_path, check=True)
