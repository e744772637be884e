"""The report on a table model, from its predictions on held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from selfcal.reporting.content import Refit, Report
from selfcal.reporting.predictions import Predictions
from selfcal.reporting.summarise import summarise
from selfcal.workflows.inspection import tried
from selfcal.workflows.table_training import Fit, TrainingRows


def report_on(judged: Predictions, fit: Fit, refit: Fit | None = None, *, seed: int, **about: Any) -> Report:
    """Report on predictions for held-out rows, and on how the model was trained.

    Args:
        judged: The predictions on the held-out rows.
        fit: The fit of the model that made them.
        refit: The fit of the model that replaces it, if another does.
        seed: The seed of the splits and the training.
        **about: `notes`, `groups`, `importance` and `provenance`, as in `summarise`.
    """
    rows, classifier, schema = fit.rows, fit.classifier, fit.preprocessor.schema
    method = classifier.method_.name
    trained_on = {
        "rows for training": f"{len(rows.parts.train):,}",
        "rows for the outer level, calibration and early stopping": f"{len(rows.parts.validation):,}",
    }
    if classifier.trains_several():
        trained_on = {"rows for cross-fitting": f"{classifier._n_rows:,}"}
    settings = {
        "target": schema.target,
        "method": method,
        "seed": seed,
        **trained_on,
        **tried(getattr(classifier, "selection_", ())),
        "steps": classifier.n_iter_,
        "columns used": f"{len(schema.used):,} of {len(schema.columns):,}",
    }
    report = summarise(
        {method: judged},
        title="How far can this model be trusted?",
        subtitle=f"Evaluated on {len(judged.y):,} held-out rows.",
        classes=np.array(rows.classes, dtype=object),
        settings=settings,
        labels=classifier.suspect_labels() if classifier.trains_several() else None,
        label_rows=rows.fitted.tolist(),
        **about,
    )
    return report if refit is None else replace(report, refit=_refit(fit.rows, refit.rows))


def _refit(before: TrainingRows, after: TrainingRows) -> Refit:
    """The numbers of rows before and after, and what they mean for the scores."""
    evaluated, refitted = len(before.fitted), len(after.fitted)
    text = (
        f"The stored model was refitted on all {refitted:,} rows after the evaluation; the scores are those of the "
        f"same method trained on {evaluated:,} of them, and for the stored model, if anything, slightly "
        "pessimistic on average."
    )
    return Refit(refitted, evaluated, text)
