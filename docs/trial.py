"""A session of somebody who tries the command line, in a real terminal: ``python -m docs.trial TABLE``.

Every command is typed into tmux, in an empty folder with one table, with mistakes and an interruption; what the
screen shows is kept, shortened. `docs.refresh` puts it into the docs, for titles that begin as `PREFIX` does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PREFIX = "session in a terminal of "
TABLE = "diabetes.csv.gz"
FIT = f"selfcal fit {TABLE} --target target --out diabetes --time-budget 30"
COMMANDS = (
    "selfcal fit diabetes.csv --target target",
    f"selfcal fit {TABLE} --target target --time-bugdet 30",
    f"selfcal fit {TABLE} --target target --method bo4cs",
    FIT,  # interrupted, as the next command is only needed then
    FIT,
    f"{FIT} --resume",
    "selfcal inspect diabetes",
    f"selfcal predict diabetes {TABLE} --out predictions.csv",
    f"selfcal predict diabetes {TABLE} --out predictions.csv",
    "cut -d, -f1,5 predictions.csv | sed '1s/.*/truth,risk/' > theirs.csv",
    "selfcal evaluate theirs.csv --target truth",
    "selfcal evaluate theirs.csv --target truth --positive pos --confidence-column risk",
    "selfcal calibrate predictions.csv --target target --out calibrated.csv",
    "selfcal report predictions.csv calibrated.csv --target target --out both.html",
    f"selfcal compare {TABLE} --target target --methods standard,temperature --seeds 2",
)
INTERRUPTED = 3
"""The place of the command that is interrupted, while a network is trained."""
FIRST_LINES, LAST_LINES = 14, 12
"""Lines of the output of a command that are kept."""
NARROW = 80
"""In a wider terminal, only what is wider than this is kept."""
PATIENCE = 300.0
"""Seconds that a command may take."""


def sessions(titles: Iterable[str], data: Path) -> dict[str, str]:
    """Run a session for each title that asks for one; give each with its transcript."""
    asked = [title for title in titles if title.startswith(PREFIX)]
    return {title: _transcript(int(re.findall(r"\d+", title)[0]), data) for title in asked}


class Terminal:
    """A shell in a terminal of its own.

    Args:
        columns: Its width.
        folder: The folder to work in, which also holds its socket.
    """

    def __init__(self, columns: int, folder: Path) -> None:
        if shutil.which("tmux") is None:
            raise RuntimeError("A session needs tmux, which is not installed: apt-get install tmux.")
        self._socket = str(folder / "socket")
        self._typed = 0
        plain = {name: os.environ[name] for name in ("HOME", "LANG", "OMP_NUM_THREADS") if name in os.environ}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = ["env", "-i", "PATH=" + path, "TERM=screen", *(f"{k}={v}" for k, v in plain.items())]
        shell += ["LC_ALL=C.UTF-8", r"PS1=[\#]$ ", "bash", "--norc", "--noprofile"]
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", f"{columns}", "-y", "50", *shell, cwd=folder)

    def type(self, command: str) -> None:
        """Type a command, and press Enter."""
        self._typed += 1
        self._wait(lambda: f"[{self._typed}]$" in self.screen(), f"the prompt before {command}")
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._tmux("send-keys", "C-c")

    def wait_for(self, text: str) -> None:
        """Wait until a text is on the screen, or the command has ended."""
        self._wait(lambda: text in self.screen() or self._ended(), text)

    def wait_for_end(self) -> None:
        """Wait until the command has ended."""
        self._wait(self._ended, "the end of a command")

    def screen(self) -> str:
        """All lines since the beginning."""
        return self._tmux("capture-pane", "-p", "-S", "-")

    def close(self) -> None:
        """End the shell, and this tmux."""
        self._tmux("kill-server")

    def _ended(self) -> bool:
        return f"[{self._typed + 1}]$" in self.screen()

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not reached():
            if time.monotonic() > end:
                raise RuntimeError(f"Waited in vain for {what}; the screen shows:\n{self.screen()}")
            time.sleep(0.2)

    def _tmux(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], cwd=cwd, capture_output=True, text=True, check=True
        )
        return done.stdout


def _transcript(columns: int, data: Path) -> str:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "work"
        folder.mkdir()
        shutil.copyfile(data, folder / TABLE)
        terminal = Terminal(columns, folder)
        bar = ""
        try:
            for place, command in enumerate(COMMANDS):
                terminal.type(command)
                if place == INTERRUPTED:
                    terminal.wait_for("realmlp")
                    time.sleep(0.5)
                    bar = _bar(terminal.screen())
                    terminal.interrupt()
                terminal.wait_for_end()
            shown = terminal.screen()
        finally:
            terminal.close()
    parts = re.split(r"^\[\d+\]\$ ?", shown.replace(str(folder), "/home/you/patients"), flags=re.MULTILINE)
    blocks = [_shortened(part) for part in parts[1:] if part.strip()]
    blocks[INTERRUPTED] = blocks[INTERRUPTED].replace("\nStopped", f"\n{bar}\n^C\nStopped", 1)
    blocks = [block for block in blocks if columns <= NARROW or _width(block) > NARROW]
    return "```text\n" + "\n\n".join(f"$ {block}" for block in blocks) + "\n```"


def _bar(screen: str) -> str:
    """The line with the bar."""
    return next((line.rstrip() for line in reversed(screen.splitlines()) if "━" in line), "")


def _width(block: str) -> int:
    return max(map(len, block.splitlines()))


def _shortened(text: str) -> str:
    """The first and the last lines of a long output."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out > 1:
        lines[FIRST_LINES:-LAST_LINES] = [f"[... {left_out} lines ...]"]
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    for title, text in sessions(
        [f"{PREFIX}{width} columns" for width in (80, 200)], Path(sys.argv[1])
    ).items():
        print(f"{title}:\n\n{text}\n")
