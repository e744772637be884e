"""The parts of a model folder besides the classifier: preprocessor, report and held-out predictions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.errors import DataError
from selfcal.reporting._plain import to_plain
from selfcal.reporting.card import model_card
from selfcal.reporting.content import Report
from selfcal.reporting.page import JSON, render
from selfcal.storage import skops_archive
from selfcal.storage.files import PREPROCESSOR
from selfcal.tabular.preprocessing import Preprocessor


@dataclass(frozen=True)
class TableContents:
    """The parts of a table model that are not its classifier.

    Attributes:
        preprocessor: Turns a table into the network's input.
        notes: Notes for the user on the data and the training.
        report: The report on the held-out rows; None for a model that was fitted without any, by an estimator.
        confidence: The confidence in each held-out row; empty if the model was refitted on them, or without a report.
        wrong: Whether the prediction was wrong there.
        codes: The true class there; empty in models of earlier versions, too.
        probs: The probability of each class there.
    """

    preprocessor: Preprocessor
    notes: tuple[str, ...]
    report: Report | None
    confidence: Float
    wrong: NDArray[np.bool_]
    codes: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    probs: Float = field(default_factory=lambda: np.empty((0, 0)))

    def files(self) -> dict[str, bytes]:
        """The files to store beside the classifier."""
        if self.report is None:
            return {}
        stored = {
            "preprocessor": self.preprocessor.state(),
            "table": json.dumps({"notes": self.notes, "numbers": self.report.to_dict()}),
            "confidence": self.confidence,
            "wrong": self.wrong,
            "codes": self.codes,
            "probs": self.probs,
        }
        return {
            PREPROCESSOR: skops_archive.dump(stored),
            "report.html": render(self.report).encode(),
            "report.json": (JSON(self.report.to_dict(), indent=1) + "\n").encode(),
            "model_card.md": model_card(self.report).encode(),
        }

    def metrics(self) -> dict[str, Any]:
        """The scores for the description of the model."""
        if self.report is None:
            return {}
        judged, names = self.report.methods[0], ("accuracy", "ece", "noise_floor", "log_loss", "brier_score")
        refit = self.report.refit
        return {
            "held_out_rows": self.report.rows,
            "judgement": judged.judgement,
            **{name: to_plain(getattr(judged, name)) for name in names},
            **({} if refit is None else {"refit": refit.text}),
        }

    @classmethod
    def read(cls, data: bytes, preprocessor: Preprocessor) -> TableContents:
        """The contents that `files` stored in the archive of the preprocessor."""
        stored = skops_archive.load(data)
        confidence, wrong = np.empty(0), np.empty(0, dtype=bool)
        if "table" not in stored:
            return cls(preprocessor, (), None, confidence, wrong)
        table = json.loads(stored["table"])
        report = Report.from_dict(table["numbers"])
        if not report.methods:
            raise DataError("A stored report must have at least one method; it has none.")
        if report.refit is None:
            confidence = checks.unit_interval(stored["confidence"])
            wrong = np.asarray(stored["wrong"], dtype=bool)
            checks.same_length(confidence=confidence, wrong=wrong)
        codes, probs = np.empty(0, dtype=np.int64), np.empty((0, 0))
        if len(stored.get("codes", ())):
            probs = checks.probabilities(stored["probs"])
            codes = checks.label_codes(stored["codes"], probs.shape[1])
            checks.same_length(codes=codes, probs=probs)
        return cls(preprocessor, tuple(table["notes"]), report, confidence, wrong, codes, probs)
