"""`selfcal fit`: from a table to a model folder."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfcal._support.locks import locked
from selfcal._support.signals import Stopped
from selfcal.commands._options import (
    By,
    MaxEpochs,
    Progress,
    TableOptions,
    Target,
    TextOptions,
    grouped,
)
from selfcal.commands._outputs import Force, check_model_folder, made_by_command
from selfcal.commands._shared import (
    AsJson,
    bytes_of,
    half_the_memory,
    note,
    print_json,
    say,
    schema_text,
    stem,
)
from selfcal.errors import ConfigError, DataError, Interrupted, TrainingError

if TYPE_CHECKING:
    from selfcal.workflows.table_model import TableModel

CHECKPOINT = "checkpoint"
"""The subfolder of the checkpoints of an unfinished training run."""


@grouped
def fit(
    data: Annotated[
        str, typer.Argument(help="A CSV, TSV, JSON lines, Parquet, Arrow or Excel file; - is standard input.")
    ],
    *,
    target: Target,
    method: Annotated[str, typer.Option(help="The training method; selfcal doctor lists them.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model. Default: the name of the file with -model.")
    ] = None,
    force: Force = False,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Resume a training that was interrupted.")
    ] = False,
    columns: TableOptions,
    text: TextOptions,
    by: By = None,
    max_levels: Annotated[int, typer.Option(min=2, help="Maximum number of categories of one column.")] = 100,
    held_out: Annotated[float, typer.Option(help="Fraction of the rows to hold out for evaluation.")] = 0.2,
    refit: Annotated[
        bool,
        typer.Option(
            "--refit",
            metavar="",
            help="After the evaluation, train on all rows and store that model; predict --max-risk refuses it.",
        ),
    ] = False,
    novelty: Annotated[
        float,
        typer.Option(
            help="The fraction of ordinary rows that predict may mark as unlike the training data; 0 marks none."
        ),
    ] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits and of the training.")] = 0,
    max_epochs: MaxEpochs = None,
    time_budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds for training with method auto, as many for --one-network, and all again for --refit. "
            "Default: 60."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    one_network: Annotated[
        bool,
        typer.Option(
            "--one-network", metavar="", help="Distil the ensemble into one network, which predicts faster."
        ),
    ] = False,
    noisy_labels: Annotated[
        bool,
        typer.Option("--noisy-labels", metavar="", help="Labels may be wrong: predict the true ones."),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory budget of the training, such as 4GB. Default: half of the memory."),
    ] = None,
    progress: Progress = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier on a table, evaluate it on held-out rows, and write a model folder with a report.

    Try:

      selfcal fit patients.csv --target diagnosis

      selfcal fit sales.csv.gz --target churned --kind zip=category --kind comment=drop --out churn

      selfcal fit patients.csv --target diagnosis --time-budget 300 --one-network

      selfcal fit patients.csv --target diagnosis --refit

      selfcal fit patients.csv --target diagnosis --resume
    """
    from selfcal._support.checks import in_range, one_of
    from selfcal._support.method_names import METHODS
    from selfcal.tabular.io import check_source, read_table

    folder = Path(f"{stem(data)}-model") if out is None else out
    one_of("--method", method, METHODS)
    in_range("--held-out", held_out, 0.01, 0.9)
    in_range("--novelty", novelty, 0, 0.5)
    if time_budget is not None:
        in_range("--time-budget", time_budget, 0, open_low=True)
    budget = half_the_memory() if memory is None else bytes_of("--memory", memory)
    reading, fitting = text.reading(), columns.fitting()
    check_source(data)
    check_model_folder(folder, force=force)
    from selfcal.workflows.table_model import TableModel  # imports torch, so the checks above come first

    asked = {
        "max_epochs": max_epochs,
        "time_budget": time_budget,
        "n_jobs": jobs,
        "n_networks": 1 if one_network else None,
        "noisy_labels": noisy_labels or None,
    }
    model = TableModel(
        method,
        seed=seed,
        held_out=held_out,
        refit=refit,
        novelty=novelty or None,
        max_levels=max_levels,
        memory=budget,
        checkpoint_dir=unfinished(folder) / CHECKPOINT,
        verbose=progress or None,
        **{name: value for name, value in asked.items() if value is not None},
    )
    if time_budget is not None and not model.classifier.trains_several():
        raise ConfigError(
            f"--time-budget is for methods that train several networks, such as 'auto'; got it with {method!r}."
        )
    started = time.perf_counter()
    with saving(folder, force=force, again="Add --resume to the same command to continue") as (
        training,
        saved,
    ):
        if saved and not resume:
            raise ConfigError(
                f"A training run for {folder} was interrupted. Add --resume to continue it, or remove {training} "
                "to start again."
            )
        if resume and not saved:
            note(f"There is nothing to resume for {folder}; training starts from the beginning.")
        table = read_table(data, **reading, budget=budget)
        model.fit(
            table,
            target,
            **fitting,
            by=by or (),
            provenance=made_by_command([data], of_model=True),
            before_training=lambda found: _show_found(found, as_json),
            before_refit=lambda _: note("Training 2 of 2, on all rows: the model to store."),
        )
        model.save(folder)
    note(*model.remarks)
    if not as_json:
        show_model(model, folder)
        return
    print_json(
        {
            "model": str(folder),
            "report": str(folder / "report.html"),
            "seconds": time.perf_counter() - started,
            "schema": model.schema.to_dict(),
            "classes": model.classes,
            "notes": model.notes,
            "report_numbers": model.report.to_dict(),
        }
    )


def unfinished(folder: Path) -> Path:
    """The folder of the checkpoints for a model folder, the same for every path that leads to it."""
    real = Path(os.path.realpath(folder))
    return real.with_name(f".{real.name}.training")


@contextmanager
def saving(folder: Path, *, force: bool, again: str) -> Iterator[tuple[Path, bool]]:
    """A context in which only this process trains a model for the folder.

    Yields the folder of the checkpoints, and whether it has some from an earlier run. At the end that folder is
    removed, unless training could be resumed from it.
    """
    check_model_folder(folder, force=force)
    training = unfinished(folder)
    with locked(training):
        check_model_folder(folder, force=force)  # no other process can write one from here on
        saved_before = _has_saved(training)
        try:
            yield training, saved_before
        except BaseException as error:
            saved = _has_saved(training)
            hopeless = isinstance(error, (TrainingError, DataError))  # resuming would fail in the same way
            if not saved_before and (hopeless or not saved):
                shutil.rmtree(training, ignore_errors=True)
            elif isinstance(error, (KeyboardInterrupt, Stopped)):  # during training or evaluation
                number = getattr(error, "number", int(signal.SIGINT))
                raise Interrupted(
                    f"Stopped; nothing is lost. {again} (saved in {training}).", number
                ) from None
            raise
        shutil.rmtree(training, ignore_errors=True)


def _has_saved(training: Path) -> bool:
    return any((training / CHECKPOINT).rglob("checkpoint-*"))


def _show_found(model: TableModel, as_json: bool) -> None:
    """Show the columns before training, while there is still time to stop and declare one."""
    if not as_json:
        say(schema_text(model.schema), table=True)
        say()
    note(*model.notes)
    if model.refit:
        note("Training 1 of 2, without the held-out rows: the model to evaluate.")


def show_model(model: TableModel, folder: Path) -> None:
    """Print the scores of a model on held-out rows, and its folder."""
    from selfcal.commands._scores import columns_that_matter, groups_text, say_verdict, scores_text
    from selfcal.reporting._names import counted

    judged = model.report.methods[0]
    say_verdict(judged)
    classes = counted(len(model.classes), "class", "classes")
    say(f"Evaluated on {counted(model.report.rows, 'held-out row')}, {classes}:")
    say(scores_text(judged, model.report.level, model.report.baseline), table=True)
    if judged.by_group:
        say(groups_text(judged), table=True)
    say()
    if model.report.importance is not None:
        say(columns_that_matter(model.report.importance))
        say()
    if model.report.novelty is not None:
        say(f"Rows unlike the training data: {model.report.novelty.text}")
        say()
    if model.report.refit is not None:
        say(model.report.refit.text)
        say()
    say(f"Model:  {folder}")
    say(f"Report: {folder / 'report.html'}")
