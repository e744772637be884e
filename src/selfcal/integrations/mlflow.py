"""Models with their calibration report in MLflow: after a fit, and from the folder of `selfcal fit`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.checks import Float, Int, shorten
from selfcal.errors import ConfigError
from selfcal.estimators.classifier import SelfCalibratedClassifier
from selfcal.reporting._verdict import JUDGEMENTS
from selfcal.reporting.content import Report
from selfcal.reporting.page import write_page
from selfcal.reporting.predictions import Predictions
from selfcal.reporting.summarise import summarise
from selfcal.storage import describe, read_extra
from selfcal.training.history import History

try:
    import mlflow
    from mlflow.entities import Metric
except ImportError as error:
    raise ConfigError(
        f"selfcal.integrations.mlflow needs MLflow; {error}. Run: pip install 'selfcal[track]'"
    ) from None

__all__ = ["log_classifier", "log_folder", "log_history"]

POINTS = 1000
"""The most points of a curve that are logged, spread evenly; also the most that MLflow takes at once."""
LONGEST = 500
"""Characters of a parameter; MLflow allows a few more."""


def log_classifier(
    clf: SelfCalibratedClassifier,
    X: ArrayLike,
    y: ArrayLike,
    *,
    name: str = "selfcal",
    own_network: bool = False,
    **options: Any,
) -> Report:
    """Log a fitted classifier to the active run, or a new one: settings, scores, history, report and model folder.

    Nothing is pickled: the model is the folder that `save` writes, and `SelfCalibratedClassifier.load` reads what
    ``mlflow.artifacts.download_artifacts`` returns for it.

    Args:
        clf: The fitted classifier.
        X: Rows that it has not seen, on which it is evaluated.
        y: Their labels.
        name: The folder of the artifacts: the page, its numbers and the model card, and the model under `model`.
        own_network: Store a network that is not from `selfcal.models` by its weights alone, as in `save`.
        **options: Further arguments of `summarise`, such as `title`, `groups` and `notes`.

    Returns:
        The report, which a notebook displays.
    """
    judged = summarise(
        {clf.method_.name: Predictions.of(clf, X, y)}, **({"classes": clf.classes_.tolist()} | options)
    )
    with TemporaryDirectory() as folder:
        write_page(judged, Path(folder) / "report.html")
        clf.save(Path(folder) / "model", own_network=own_network)
        _log_settings({**clf.get_params(deep=False), "method": clf.method_.name})
        _log_report(judged)
        if hasattr(clf, "history_"):
            log_history(clf.history_)
        mlflow.log_artifacts(folder, name)
    return judged


def log_folder(folder: str | os.PathLike[str], *, name: str = "selfcal") -> Report:
    """Log the model folder of `selfcal fit` to the active run, or a new one: settings, scores, report and model.

    The hashes of the folder are verified, and only files that belong to the model are logged.

    Args:
        folder: The model folder.
        name: The folder of the artifacts, in which the model is under `model`.

    Returns:
        The report on the held-out rows.
    """
    description = describe(folder)
    numbers = read_extra(folder, "report.json")
    if numbers is None:
        raise ConfigError(
            f"{folder} has no report.json, which models of selfcal fit have. Use log_classifier with rows to "
            "evaluate on."
        )
    judged = Report.from_dict(json.loads(numbers))
    _log_settings(description["settings"])
    _log_report(judged)
    for file in ("model.json", *description["files"]):
        mlflow.log_artifact(os.fspath(Path(folder) / file), f"{name}/model")
    return judged


def log_history(history: History) -> None:
    """Log the course of training as metrics by step: the losses of the training, outer and selection rows."""
    curves = {
        "inner_loss": (np.arange(1, len(history.inner_loss) + 1), history.inner_loss),
        "outer_loss": (history.outer_step, history.outer_loss),
        "selection_loss": (history.selection_step, history.selection_loss),
    }
    run = mlflow.active_run() or mlflow.start_run()
    for curve, (steps, values) in curves.items():
        metrics = [Metric(f"history/{curve}", value, 0, step) for step, value in _thinned(steps, values)]
        mlflow.MlflowClient().log_batch(run.info.run_id, metrics=metrics)


def _thinned(steps: Int, values: Float) -> list[tuple[int, float]]:
    """At most `POINTS` points, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), POINTS)).round().astype(int))
    return [(int(steps[at]), float(values[at])) for at in chosen]


def _log_settings(settings: Mapping[str, Any]) -> None:
    mlflow.log_params({name: shorten(value, LONGEST) for name, value in settings.items()})


def _log_report(judged: Report) -> None:
    best = judged.methods[0]
    scores = {name: getattr(best, name) for name in ("accuracy", "ece", "log_loss", "brier_score", "roc_auc")}
    found = {name: score.value for name, score in scores.items() if score is not None}
    mlflow.log_metrics(found | {"ece_by_chance": best.noise_floor.mean, "rows": judged.rows})
    mlflow.set_tags(
        {"selfcal": judged.selfcal, "calibration": JUDGEMENTS[best.judgement], "verdict": best.verdict.text}
    )
