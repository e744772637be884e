"""`selfcal predict`: classes, confidences and probabilities for the rows of a table."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfcal.commands._answering import NOVEL, Answering
from selfcal.commands._options import Progress, TextOptions, grouped
from selfcal.commands._outputs import Force, check_file
from selfcal.commands._shared import AsJson, note, print_json, read_showing, say, words
from selfcal.errors import ConfigError, PromiseWarning

if TYPE_CHECKING:
    from selfcal.conformal import ConformalClassifier
    from selfcal.workflows.table_model import TableModel


ROWS, NUMBERS = 65_536, 2**24
"""The most rows, and numbers, that are in memory at a time."""


@grouped
def predict(
    model: Annotated[Path, typer.Argument(help="The folder that selfcal fit wrote.")],
    data: Annotated[
        list[str],
        typer.Argument(
            help="A CSV, TSV, JSON lines, Parquet, Arrow or Excel file (- is standard input), several of them, a "
            "folder, or a pattern such as 'in-*.parquet'."
        ),
    ],
    *,
    out: Annotated[
        str,
        typer.Option(
            help="A .csv, .tsv, .csv.gz or .parquet file (- is standard output); for several files, a folder."
        ),
    ],
    force: Force = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", metavar="", help="Keep the finished files of a folder, and do the others."),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes for several files.")] = 1,
    max_risk: Annotated[
        float | None,
        typer.Option(
            help="Abstain so that at most this fraction of the remaining predictions is wrong, e.g. 0.05."
        ),
    ] = None,
    sets: Annotated[
        float | None,
        typer.Option(
            help="Add the set of classes that contains the true one for this fraction of new rows, e.g. 0.95."
        ),
    ] = None,
    novel: Annotated[
        str | None,
        typer.Option(
            metavar="mark|abstain|off",
            help="Rows unlike the training data: mark them in the column novel, abstain on them as well, or off. "
            "Default: mark, if the model can tell.",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Columns of the data to copy, separated by commas. The target is always copied."),
    ] = None,
    excel_safe: Annotated[
        bool,
        typer.Option(
            "--excel-safe", metavar="", help="Put ' before text that a spreadsheet would run as a formula."
        ),
    ] = False,
    text: TextOptions,
    progress: Progress = False,
    as_json: AsJson = False,
) -> None:
    """Write the class, the confidence and every probability of each row, in the order of the rows.

    The column novel is true for rows unlike the training data. With --max-risk or --novel abstain, the column abstain
    is true for rows on which the model abstains; with --sets, the column prediction_set is a list of classes, such as
    ["benign", "malignant"]. Several files, a folder or a pattern give a
    folder with one file for each; --resume continues after an interruption.

    Try:

      selfcal predict patients-model new.csv --out predictions.csv

      selfcal predict patients-model new.csv --out - --max-risk 0.05 | head

      selfcal predict patients-model new.csv --out predictions.csv --novel abstain

      selfcal predict patients-model 'in-*.parquet' --out predictions --jobs 4
    """
    from selfcal.reporting._names import counted
    from selfcal.storage.files import model_files
    from selfcal.tabular.io import check_source, write_batches
    from selfcal.tabular.io.writing import separator_of

    if as_json and out == "-":
        raise ConfigError("--json and --out - cannot both write to standard output. Pass a file to --out.")
    _check_wishes(max_risk, sets, novel)
    reading = text.reading()
    kept = [] if keep is None else words("--keep", keep)
    files = model_files(model)
    from selfcal.workflows.parts import several

    if several(data):
        _predict_several(
            model,
            data,
            Path(out),
            force=force,
            resume=resume,
            jobs=jobs,
            max_risk=max_risk,
            sets=sets,
            novel=novel,
            kept=kept,
            excel_safe=excel_safe,
            reading=reading,
            progress=progress,
            as_json=as_json,
        )
        return
    if resume:
        raise ConfigError("--resume needs several files, of which some are finished; got one. Leave it out.")
    separator_of(out)
    source = data[0]
    check_source(source)
    check_file("--out", out, inputs=[source, *files], force=force)
    from selfcal.workflows.table_model import TableModel  # imports torch, so the checks above come first

    loaded = TableModel.load(model)
    answering = Answering(loaded, kept, novel=_checked_novel(loaded, novel))
    if max_risk is not None:
        answering.threshold, promise = _noted_threshold(loaded, max_risk, answering.novel)
    if sets is not None:
        answering.conformal, set_guarantee = _noted_sets(loaded, sets)
    garbled = out == "-" and sys.stdout.isatty()  # by a progress bar among the rows
    show = False if garbled else progress or None
    batch_rows = _batch_rows(loaded)
    showing = read_showing(
        "Predicting", source, show=show, batch_rows=batch_rows, allow_empty=True, **reading
    )
    with _one_thread(), showing as parts:
        rows = write_batches(answering.answers(parts), out, excel_safe=excel_safe)
    note(*answering.notes())
    result: dict[str, Any] = {"rows": rows, "out": out, "notes": answering.notes()}
    if max_risk is not None:
        result |= promise
    if sets is not None:
        result["set_guarantee"] = set_guarantee
    result |= answering.found()
    if as_json:
        print_json(result)
    elif out != "-":
        say(f"{counted(rows, 'row')}{_summary(answering)}: {out}")


def _check_wishes(max_risk: float | None, sets: float | None, novel: str | None) -> None:
    """Refuse values that no model could fulfil."""
    from selfcal._support.checks import one_of

    if max_risk is not None and not 0 < max_risk < 1:
        raise ConfigError(f"--max-risk must be between 0 and 1, for example 0.05; got {max_risk:g}.")
    if sets is not None and not 0 < sets < 1:
        raise ConfigError(f"--sets must be between 0 and 1, for example 0.95; got {sets:g}.")
    if novel is not None:
        one_of("--novel", novel, NOVEL)


def _summary(answering: Answering) -> str:
    """What was found besides the number of rows."""
    found = answering.found()
    text = f", abstained on {answering.abstained:,} of them" if answering.abstains else ""
    if "novel" in found:
        text += (
            f", {found['novel']:,} unlike the training data (up to {found['novel_expected']:,.1f} expected)"
        )
    size = answering.mean_set_size
    return text + ("" if size is None else f", sets of {size:.2f} classes on average")


def _checked_novel(model: TableModel, novel: str | None) -> str:
    """What to do with rows unlike the training data; by default to mark them, if the model can tell."""
    if model.detector is not None:
        return novel or "mark"
    if novel in ("mark", "abstain"):
        raise ConfigError(
            f"--novel {novel} needs a novelty score; this model has none: selfcal fit was run with --novelty 0 or "
            "--refit, on few rows or many columns, or in an earlier version. Fit it again, or leave --novel out."
        )
    return "off"


def _noted_threshold(model: TableModel, max_risk: float, novel: str) -> tuple[float, dict[str, Any]]:
    """The threshold on the confidence and, once it is printed, what it guarantees."""
    threshold, guarantee = model.threshold(max_risk)
    text = _in_options(guarantee.text, "Pass a higher --max-risk, or fit the model on more rows.")
    if novel == "abstain":
        text += " This includes the answers that --novel abstain withholds as well."
    note(text)
    return threshold, {"guarantee": text, "threshold_holds": guarantee.holds}


def _noted_sets(model: TableModel, coverage: float) -> tuple[ConformalClassifier, str]:
    """The prediction sets of the model and, once it is printed, what they guarantee."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PromiseWarning)  # the note says the same
        conformal = model.prediction_sets(coverage)
    text = _in_options(conformal.guarantee_.text, "Pass a lower --sets, or fit the model on more rows.")
    note(text)
    return conformal, text


def _in_options(text: str, remedy: str) -> str:
    """The text, with this remedy for the one that it ends with, if any, which names arguments of Python."""
    said, found, _ = text.rpartition(" Pass ")
    return f"{said} {remedy}" if found else text


def _batch_rows(model: TableModel) -> int:
    return max(1, min(ROWS, NUMBERS // len(model.preprocessor.feature_names)))


def _predict_several(
    model: Path,
    data: list[str],
    folder: Path,
    *,
    force: bool,
    resume: bool,
    jobs: int,
    max_risk: float | None,
    sets: float | None,
    novel: str | None,
    kept: list[str],
    excel_safe: bool,
    reading: dict[str, Any],
    progress: bool,
    as_json: bool,
) -> None:
    from selfcal.commands import _predict_parts as several_files
    from selfcal.reporting._names import counted
    from selfcal.workflows.parts import find_parts

    if str(folder) == "-":
        raise ConfigError(
            "--out must name a folder for several files, of which each has its own output; got '-'."
        )
    paths = find_parts(data)
    todo = several_files.check_outputs(paths, folder, force=force, resume=resume)
    from selfcal.workflows.table_model import TableModel  # imports torch, so the checks above come first

    loaded = TableModel.load(model)
    answering = Answering(loaded, kept, novel=_checked_novel(loaded, novel))
    result: dict[str, Any] = {}
    if max_risk is not None:
        answering.threshold, promise = _noted_threshold(loaded, max_risk, answering.novel)
        result |= promise
    if sets is not None:
        answering.conformal, result["set_guarantee"] = _noted_sets(loaded, sets)
    options = several_files.PartOptions(
        str(model),
        tuple(kept),
        answering.threshold,
        sets,
        answering.novel,
        excel_safe,
        reading,
        _batch_rows(loaded),
    )
    found = several_files.predict_parts(
        todo, folder, options, total=len(paths), jobs=jobs, resume=resume, show=progress or None
    )
    answering.unseen, answering.extra = Counter(found.unseen), found.extra
    answering.abstained, answering.rows, answering.in_sets = found.abstained, found.rows, found.in_sets
    answering.marked = found.marked
    note(*answering.notes())
    finished = len(paths) - len(todo)
    if finished:
        note(f"{finished} of {len(paths)} files were finished before.")
    result |= answering.found()
    if as_json:
        files = {"found": len(paths), "finished_before": finished}
        print_json(
            {"files": files, "rows": found.rows, "out": str(folder), "notes": answering.notes(), **result}
        )
        return
    rows = counted(found.rows, "row")
    say(f"{counted(len(todo), 'file')}, {rows}{_summary(answering)}: {folder}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """A context with one torch thread: blocks are too small to gain from more, and reading uses the other cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
