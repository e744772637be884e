"""What a model folder says about its model, read without torch and without building the model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfcal._support.checks import shorten
from selfcal.errors import ModelFormatError
from selfcal.reporting._names import counted
from selfcal.reporting.content import Report
from selfcal.storage import skops_archive
from selfcal.storage.files import PREPROCESSOR, opened
from selfcal.tabular.schema import Schema


@dataclass(frozen=True)
class Inspected:
    """What is stored about a table model besides its numbers.

    Attributes:
        description: The content of `model.json`.
        schema: The columns and their kinds.
        classes: The labels.
        notes: Notes for the user on the data and the training.
        report: The report on the held-out rows; None if an estimator was fitted, without any.
    """

    description: Mapping[str, Any]
    schema: Schema
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    report: Report | None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Inspected:
        """Read a folder that `TableModel.save` wrote; every file is verified."""
        description, files = opened(path, "SelfCalibratedClassifier")
        data = files.get(PREPROCESSOR)
        if data is None:
            raise no_table(path)
        try:
            learned = json.loads(skops_archive.load_text(data, "preprocessor", "learned"))
            table: dict[str, Any] = {"notes": (), "numbers": None}
            if skops_archive.holds(data, "table"):
                table = json.loads(skops_archive.load_text(data, "table"))
            return cls(
                description,
                Schema.from_dict(learned["schema"]),
                tuple(map(str, description["classes"]["values"])),
                tuple(map(str, table["notes"])),
                None if table["numbers"] is None else Report.from_dict(table["numbers"]),
            )
        except Exception as error:  # a damaged or hostile file may raise anything
            raise ModelFormatError(
                f"{path}/{PREPROCESSOR} holds nothing that can be used: {shorten(error, 300)}"
            ) from error


def no_table(path: str | os.PathLike[str]) -> ModelFormatError:
    """The error about a model that was not trained on a table."""
    return ModelFormatError(
        f"{path} holds a classifier without {PREPROCESSOR}: it was trained on arrays, not on a table. Use it from "
        "Python, with SelfCalibratedClassifier.load."
    )


def tried(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The candidates of a selection, one line for each."""
    lines = {}
    for record in records:
        loss = record["out_of_fold_log_loss"]
        members = f"{record['networks']:,} of {counted(record['planned'], 'member')}"
        lines[f"candidate {record['network']!r}"] = (
            "not trained: the time budget was used up"
            if loss is None
            else f"weight {record['weight']:.0%}; out-of-fold log loss {loss:.4f}, {members}"
            f"{', stopped by the time budget' if record['out_of_time'] else ''}"
        )
    return lines
