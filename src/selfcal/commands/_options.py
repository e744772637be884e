"""Options that several commands have, in groups that a command takes as one argument."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from selfcal.commands._shared import pairs, words

Target = Annotated[str, typer.Option(help="The column with the true classes.")]
DropUnlabelled = Annotated[
    bool,
    typer.Option("--drop-unlabelled", metavar="", help="Drop rows without a label, instead of an error."),
]
MaxEpochs = Annotated[int | None, typer.Option(min=1, help="Maximum number of epochs.")]
TimeBudget = Annotated[
    float | None,
    typer.Option(help="Seconds of each training that has several candidates, such as auto. Default: 60."),
]
Progress = Annotated[
    bool,
    typer.Option(
        "--progress", metavar="", help="Print a line of progress every ten seconds if there is no terminal."
    ),
]
Jobs = Annotated[int, typer.Option(min=1, show_default="one per processor", help="Number of processes.")]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="COLUMN",
        help="Also evaluate each group of rows that a column makes, such as age or site; may be repeated.",
    ),
]
CORES = os.cpu_count() or 1


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Make every parameter that is a group of options, a dataclass, into the options that it holds."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        command(**given)

    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _parameters(groups[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(one.name, kind, default=one.default, annotation=hints[one.name])
        for one in fields(group)
    ]


@dataclass(frozen=True)
class TextOptions:
    """The format of a text file."""

    sep: Annotated[
        str | None,
        typer.Option(
            help="The separator between cells, such as ';' or tab. Default: detected automatically."
        ),
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="The encoding of the text, such as latin-1. Default: UTF-8.")
    ] = None
    ragged: Annotated[
        bool, typer.Option("--ragged", metavar="", help="Treat missing cells at the end of a line as empty.")
    ] = False
    sheet: Annotated[
        str | None, typer.Option(help="The sheet of an Excel workbook, if several have cells.")
    ] = None

    def reading(self) -> dict[str, Any]:
        """Arguments of `read_table` and `read_batches`, after a check."""
        if self.sep is not None:
            from selfcal.tabular.io.delimited import checked_separator

            checked_separator(self.sep)
        if self.encoding is not None:
            from selfcal.tabular.io.source import text_encoding

            text_encoding(self.encoding)
        return {"sep": self.sep, "encoding": self.encoding, "ragged": self.ragged, "sheet": self.sheet}


@dataclass(frozen=True)
class TableOptions:
    """The kinds and values of the columns of a table, and the groups of its rows."""

    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="NAME=KIND",
            help="The kind of a column: number, boolean, category, date or drop. May be repeated. A date may have a "
            "format, date:%d/%m/%Y, and a number its decimal separator, number:,",
        ),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(
            help="The decimal separator of numbers, . or a comma. Default: detected for each column."
        ),
    ] = None
    missing: Annotated[
        list[str] | None, typer.Option(help="A further spelling of a missing value; may be repeated.")
    ] = None
    nonfinite: Annotated[
        str, typer.Option(help="Infinite numbers: error, or impute to treat them as missing.")
    ] = "error"
    drop_unlabelled: DropUnlabelled = False
    classes_anyway: Annotated[
        bool,
        typer.Option(
            "--classes-anyway",
            metavar="",
            help="Accept a target that looks continuous; each number is a class.",
        ),
    ] = False
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Rows with the same value stay together in every split, such as visits of one patient.",
        ),
    ] = None

    def fitting(self) -> dict[str, Any]:
        """Arguments of `TableModel.fit`, after a check."""
        from selfcal.tabular.inference import check_numbers, checked_kinds

        check_numbers(self.nonfinite, self.decimal)
        return {
            "drop_unlabelled": self.drop_unlabelled,
            "classes_anyway": self.classes_anyway,
            "group": self.group,
            "kinds": checked_kinds(pairs("--kind", self.kind, example="zip=category")),
            "missing": self.missing or (),
            "nonfinite": self.nonfinite,
            "decimal": self.decimal,
        }


@dataclass(frozen=True)
class PredictionOptions:
    """The columns of a table that hold the predictions, and what is in them."""

    prob_prefix: Annotated[
        str | None,
        typer.Option(help="The prefix of the columns of probabilities, before the class, such as prob_."),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(help="The columns of probabilities, separated by commas, if not named after classes."),
    ] = None
    classes: Annotated[
        str | None, typer.Option(help="The classes, separated by commas, in the order of --columns.")
    ] = None
    positive: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="The class, of two, whose probability the only column holds."),
    ] = None
    class_column: Annotated[str | None, typer.Option(help="The column with the predicted class.")] = None
    confidence_column: Annotated[
        str | None,
        typer.Option(help="The column with its confidence, or with --positive, with the probability."),
    ] = None
    correct: Annotated[
        bool,
        typer.Option(
            "--correct",
            metavar="",
            help="The target tells whether the prediction is right: 1 or 0, true or false.",
        ),
    ] = False
    logits: Annotated[bool, typer.Option("--logits", metavar="", help="The columns hold logits.")] = False
    scale: Annotated[
        str | None,
        typer.Option(
            help="fraction (0 to 1) or percent (0 to 100). Default: detected from the sums of the rows."
        ),
    ] = None
    drop_unlabelled: DropUnlabelled = False

    def layout(self) -> dict[str, Any]:
        """Arguments of `find_layout`."""
        return {
            "prefix": self.prob_prefix,
            "columns": None if self.columns is None else words("--columns", self.columns),
            "classes": None if self.classes is None else words("--classes", self.classes),
            "positive": self.positive,
            "choice": self.class_column,
            "confidence": self.confidence_column,
            "correct": self.correct,
            "logits": self.logits,
            "scale": self.scale,
        }
