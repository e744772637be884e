"""The outputs of commands, for the docs: they run one after the other in a folder that contains one table."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path

PREFIX = "output of "
TABLE = "diabetes.csv.gz"


def outputs(titles: Iterable[str], data: Path) -> dict[str, str]:
    """Run the commands in the titles that begin as `PREFIX` does; give each with what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(data, Path(folder) / TABLE)
        return {
            title: _shown(title.removeprefix(PREFIX), folder) for title in titles if title.startswith(PREFIX)
        }


def _shown(command: str, folder: str) -> str:
    words = shlex.split(command)
    if words[0] == "selfcal":
        words[:1] = [sys.executable, "-m", "selfcal"]
    plain = os.environ | {"NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        words, cwd=folder, env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout}")
    said = done.stdout
    for here, there in (
        (folder, "/home/you/patients"),
        (tempfile.gettempdir(), "/tmp"),
        (sys.executable, "python"),
        (platform.release(), "6.8"),
    ):
        said = said.replace(here, there)
    lines = [
        part for line in said.splitlines() for part in textwrap.wrap(line, 118, drop_whitespace=False) or [""]
    ]
    printed = "\n".join(line.rstrip() for line in lines).strip("\n")
    return f"```sh\n{command}\n```\n\n```text\n{printed}\n```"
