"""Helpers that all commands use: printing, and parsing of command-line values."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from selfcal.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from selfcal.tabular.schema import Schema

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".jsonl", ".ndjson", ".xlsx", ".arrow", ".feather")
"""Endings of tables that are left out of the names of outputs."""

AsJson = Annotated[
    bool, typer.Option("--json", metavar="", help="Print the result as JSON on standard output.")
]
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    r"""Return text that cannot move the cursor, colour the terminal or turn a line around.

    >>> clean("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def say(
    text: str = "",
    *,
    err: bool = False,
    table: bool = False,
    indent: int = 0,
    mark: str = "",
    colour: str | None = None,
) -> None:
    """Print a line or several as they are, without markup; on a terminal, text breaks between words.

    Args:
        text: The text.
        err: Print it to standard error.
        table: Do not break its lines.
        indent: Spaces before what follows a break.
        mark: A beginning of the text to show in colour, where there is any.
        colour: That colour.
    """
    stream = sys.stderr if err else sys.stdout
    shown = clean(text)
    if stream.isatty() and not table:
        wrap = textwrap.TextWrapper(
            shutil.get_terminal_size().columns,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        shown = "\n".join(map(wrap.fill, shown.splitlines()))
    if mark and shown.startswith(mark) and _coloured(stream):
        shown = typer.style(mark, fg=colour) + shown[len(mark) :]
    if err:
        print(shown, file=sys.stderr, flush=True)  # echo would write into a progress bar
    else:
        typer.echo(shown)


def _coloured(stream: TextIO) -> bool:
    return (
        stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )


def note(*notes: str) -> None:
    """Print notes to standard error, separate from the result."""
    for text in notes:
        say(f"note: {text}", err=True, mark="note:", colour="cyan")


def warn(text: str) -> None:
    """Print a warning to standard error: the result may not be what the user wants."""
    say(f"warning: {text}", err=True, mark="warning:", colour="yellow")


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """A context in which each warning of the library is printed once, as a one-line note."""
    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = lambda message, category, *_: (
            note(str(message)) if issubclass(category, UserWarning) else None
        )
        yield


@contextmanager
def read_showing(
    title: str, source: str, *, show: bool | None = None, **options: Any
) -> Iterator[Iterator[pl.DataFrame]]:
    """A context that reads a table part by part, as `read_batches` does, and shows the progress."""
    from selfcal._support.progress import progress_bar
    from selfcal.tabular.io import read_batches

    rows = 0

    def watch(fraction: float | None) -> None:
        if fraction is None:
            advance(rows, f"{rows:,} rows")
        else:
            advance(fraction, f"{rows:,} rows")

    def counted() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for part in read_batches(source, watch=watch, **options):
            rows += part.height
            yield part

    with progress_bar(title, None if source == "-" else 1, show) as advance:
        yield counted()


def print_json(values: Mapping[str, Any]) -> None:
    """Print a result for other programs."""
    typer.echo(json.dumps(values, indent=1, allow_nan=False, default=str))


def columns_text(rows: Sequence[Sequence[str]], *, indent: str = "  ") -> str:
    """Rows of words in columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def schema_text(schema: Schema, most: int = 40) -> str:
    """The columns and their kinds, the first of many."""
    shown = str(replace(schema, columns=schema.columns[:most]))
    more = len(schema.columns) - most
    return shown + (f"\n... and {more:,} more column{'s' * (more != 1)}" if more > 0 else "")


def pairs(option: str, values: Iterable[str] | None, *, example: str) -> dict[str, str]:
    """NAME=VALUE, several times; the name may contain an equals sign, the value may not."""
    found: dict[str, str] = {}
    for value in values or ():
        name, equals, word = value.rpartition("=")
        if not equals or not name:
            raise ConfigError(f"{option} must be NAME=VALUE, such as {option} {example}; got {value!r}.")
        if name in found:
            raise ConfigError(
                f"{option} must name {name!r} once; got it with {found[name]!r} and {word!r}. Keep one of them."
            )
        found[name] = word
    return found


def bytes_of(option: str, text: str) -> int:
    """A size such as 4GB, 500MB or 1.5G.

    >>> bytes_of("--memory", "1.5 GB") / 2**30
    1.5
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MGT])B?", text.strip(), re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"{option} must be a size, such as {option} 4GB or {option} 500MB; got {text!r}.")
    return int(float(found[1]) * {"M": 2**20, "G": 2**30, "T": 2**40}[found[2].upper()])


def half_the_memory() -> int:
    """Half of what this machine has, or of what this process may use of it."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, ValueError):
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes) // 2


def words(option: str, text: str) -> list[str]:
    """Words between commas."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise ConfigError(f"{option} must name at least one, separated by commas; got {text!r}.")
    return found


def stem(data: str) -> str:
    """The name of a file without folders and endings; for standard input, selfcal."""
    if data == "-":
        return "selfcal"
    name = os.path.basename(os.path.normpath(data))
    for ending in (".gz", ".zip", *SUFFIXES):
        name = name.removesuffix(ending)
    return name or "selfcal"
