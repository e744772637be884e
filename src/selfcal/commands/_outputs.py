"""Checks of output paths, made before any work is done so that nothing is overwritten by accident."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfcal._support.files import is_temporary
from selfcal._support.locks import LOCK, locked
from selfcal.commands._command import typed
from selfcal.errors import ConfigError, OutputError, SelfcalError

if TYPE_CHECKING:
    from selfcal.reporting.content import Provenance

Force = Annotated[bool, typer.Option("--force", metavar="", help="Replace an output that exists.")]


def check_file(
    option: str, out: str | Path, *, inputs: Iterable[str | Path] = (), force: bool = False
) -> None:
    """Refuse to replace an input, anything that is not a file, and, without `force`, any file."""
    path = Path(out)
    if str(out) == "-" or not os.path.lexists(path):
        return
    if path.exists() and not path.is_file():
        raise ConfigError(f"{option} must name a file; {path} is something else, such as a folder.")
    for source in inputs:
        if os.path.exists(source) and path.exists() and os.path.samefile(source, path):
            raise ConfigError(f"{option} must not name the input {source}, which would be lost.")
    if not force:
        raise ConfigError(f"{path} already exists. Add --force to replace it, or choose another {option}.")


def made_by_command(files: Iterable[str], *, of_model: bool = False) -> Provenance:
    """Where the report of the command that is running comes from."""
    from selfcal.reporting.content import Provenance

    today = datetime.now().astimezone().date().isoformat()
    return Provenance(today, typed(), tuple(map(os.path.basename, files)), of_model)


def check_page(option: str, page: Path, *, inputs: Iterable[str] = (), force: bool = False) -> None:
    """Check the files of a report: the page itself, its numbers and its card."""
    from selfcal.reporting.page import report_files

    if page.suffix != ".html":
        raise ConfigError(f"{option} must end in .html; got {str(page)!r}.")
    for file in report_files(page):
        check_file(option, file, inputs=inputs, force=force)


def check_model_folder(folder: Path, *, force: bool = False) -> None:
    """Refuse a folder that cannot be replaced as a whole, and, without `force`, one that holds a model."""
    from selfcal._support.files import check_folder
    from selfcal.storage.files import DESCRIPTION, EXTRAS, TENSORS

    _check_not_above(folder)
    try:
        check_folder(folder, {DESCRIPTION, TENSORS, *EXTRAS})
    except OutputError as error:
        raise ConfigError(str(error)) from None
    if not force and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} already holds {_described(folder)}. Add --force to replace it, or choose another folder with "
            "--out."
        )


def check_results_folder(folder: Path, *, results: str | None = "results.json", force: bool = False) -> None:
    """Refuse a folder with other files, unless it has results to continue from, or another process writes them."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out must name a folder; {folder} is a file. Choose another name.")
    found = os.listdir(folder) if folder.exists() else []
    present = sorted(name for name in found if name != LOCK and not is_temporary(name))
    if present and results not in present and not force:
        allowed = (
            "a new or empty folder" if results is None else f"a folder that is new, empty or has {results}"
        )
        raise ConfigError(f"--out must name {allowed}; {folder} holds {present[0]!r}. Choose another.")


@contextmanager
def results_folder(folder: Path, *, waiting: Callable[[], object] | None = None) -> Iterator[None]:
    """A context in which only this process writes results into a folder, after checking it; see `locked`."""
    check_results_folder(folder)
    with locked(folder, waiting=waiting):
        yield


def _check_not_above(folder: Path) -> None:
    """A model folder is replaced as a whole; the current folder and those above it cannot be."""
    real = Path(os.path.realpath(folder))
    if real == Path.cwd() or real in Path.cwd().parents:
        raise ConfigError(
            f"--out must name a separate folder for the model; {str(folder)!r} is or contains the current folder. "
            "Choose a new name, such as --out model."
        )


def _described(folder: Path) -> str:
    from selfcal.workflows.inspection import Inspected

    try:
        target = Inspected.read(folder).schema.target
        return f"a model with target {target!r}" if target else "a model"
    except SelfcalError:
        return "files of a model"
