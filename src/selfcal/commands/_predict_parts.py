"""`selfcal predict` for several files: one file of predictions for each, by several processes."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcal._support.files import remove_leftovers, write_atomically
from selfcal._support.locks import locked
from selfcal._support.progress import progress_bar
from selfcal.commands._answering import Answering
from selfcal.errors import ConfigError, DataError, PromiseWarning
from selfcal.tabular.io import read_batches, write_batches

if TYPE_CHECKING:
    from selfcal.workflows.table_model import TableModel

SETTINGS = ".predictions.json"
"""The file in the output folder that says what made the predictions."""

_KEPT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")


@dataclass(frozen=True)
class PartOptions:
    """How a file is predicted."""

    model: str
    keep: tuple[str, ...]
    threshold: float | None
    sets: float | None
    novel: str
    excel_safe: bool
    reading: dict[str, Any]
    batch_rows: int


@dataclass(frozen=True)
class Predicted:
    """What was found in a file."""

    rows: int
    abstained: int
    in_sets: int
    marked: int
    unseen: dict[str, int]
    extra: tuple[str, ...]


def output_of(path: str, folder: Path) -> Path:
    """The file in the folder for an input, in the same format; CSV for other text files.

    >>> output_of("in/a.parquet", Path("out")).as_posix(), output_of("b.txt", Path("out")).as_posix()
    ('out/a.parquet', 'out/b.csv')
    """
    name = os.path.basename(path)
    if name.lower().endswith(_KEPT):
        return folder / name
    return folder / f"{name.removesuffix('.gz').rpartition('.')[0] or name}.csv"


def check_outputs(paths: Sequence[str], folder: Path, *, force: bool, resume: bool) -> list[tuple[str, Path]]:
    """The inputs that are still to be predicted, with their outputs; refuses to overwrite a file."""
    if force and resume:
        raise ConfigError(
            "--force and --resume exclude each other: one replaces all files, the other keeps them."
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out must name a folder for several files; {folder} is a file.")
    outputs: dict[Path, str] = {}
    for path in paths:
        out = output_of(path, folder)
        if out in outputs:
            raise ConfigError(
                f"The files must have different names, which their outputs take over; {outputs[out]} and {path} "
                f"would both become {out}. Rename one, or use another folder for it."
            )
        if out.exists() and any(os.path.samefile(out, other) for other in paths if os.path.exists(other)):
            raise ConfigError(f"--out must not name the folder of the input {path}, which would be lost.")
        outputs[out] = path
    todo = [(path, out) for out, path in outputs.items() if not (resume and _is_done(path, out))]
    for _, out in todo:
        if out.exists() and not force:
            reason = " and is older than its input" if resume else ""
            hint = (
                "--force to replace all"
                if resume
                else "--resume to keep finished files, --force to replace them"
            )
            raise ConfigError(
                f"{out} already exists{reason}. Add {hint}, or choose another --out than {folder}."
            )
    return todo


def predict_parts(
    todo: Sequence[tuple[str, Path]],
    folder: Path,
    options: PartOptions,
    *,
    total: int,
    jobs: int,
    resume: bool,
    show: bool | None = None,
) -> Predicted:
    """Predict files, and write one output for each."""
    with locked(folder):
        remove_leftovers(folder)
        _check_settings(folder, options, resume=resume)
        calls = [(path, str(out), options) for path, out in todo]
        rows = abstained = in_sets = marked = 0
        unseen: Counter[str] = Counter()
        extra: tuple[str, ...] = ()
        with progress_bar("Predicting", total, show) as advance:
            for done, found in enumerate(_results(calls, jobs), start=total - len(todo) + 1):
                rows, abstained = rows + found.rows, abstained + found.abstained
                in_sets, marked = in_sets + found.in_sets, marked + found.marked
                unseen.update(found.unseen)
                extra = found.extra
                advance(done, f"files, {rows:,} rows")
    return Predicted(rows, abstained, in_sets, marked, dict(unseen), extra)


def predict_part(path: str, out: str, options: PartOptions) -> Predicted:
    """Predict one file; the output appears whole or not at all."""
    answering = Answering(_model(options.model), list(options.keep), novel=options.novel)
    answering.threshold = options.threshold
    if options.sets is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PromiseWarning)  # said once, for all files
            answering.conformal = answering.model.prediction_sets(options.sets)
    parts = read_batches(path, batch_rows=options.batch_rows, allow_empty=True, **options.reading)
    try:
        rows = write_batches(answering.answers(parts), out, excel_safe=options.excel_safe)
    except DataError as error:
        raise DataError(str(error) if path in str(error) else f"{path}: {error}") from error
    found = answering.abstained, answering.in_sets, answering.marked
    return Predicted(rows, *found, dict(answering.unseen), answering.extra)


@functools.lru_cache(maxsize=1)
def _model(path: str) -> TableModel:
    """The model, loaded once in each process."""
    from selfcal.workflows.table_model import TableModel

    return TableModel.load(path)


def _results(calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Predicted]:
    from selfcal._support.jobs import run_calls

    return run_calls(predict_part, calls, n_jobs=max(1, min(jobs, len(calls))))


def _is_done(path: str, out: Path) -> bool:
    """Whether the output is there, which is whole if it is, and no older than its input."""
    return out.exists() and (not os.path.exists(path) or out.stat().st_mtime_ns >= os.stat(path).st_mtime_ns)


def _check_settings(folder: Path, options: PartOptions, *, resume: bool) -> None:
    """Record what makes the predictions; `--resume` continues only the same."""
    from selfcal.storage.files import DESCRIPTION

    made_by = asdict(options) | {
        "model": hashlib.sha256(Path(options.model, DESCRIPTION).read_bytes()).hexdigest()
    }
    made_by.pop("batch_rows")
    text = json.dumps(made_by, sort_keys=True, indent=1)
    kept = folder / SETTINGS
    if resume and kept.exists() and kept.read_text() != text:
        raise ConfigError(
            f"--resume must continue with the same model and options; {folder} holds predictions with others. "
            "Choose another --out, or replace them with --force."
        )
    write_atomically(kept, text)
