"""The display of a classifier in a notebook: scikit-learn's diagram, and what is known of its calibration."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import estimator_html_repr

from selfcal.reporting.content import Report
from selfcal.reporting.predictions import Predictions
from selfcal.reporting.summarise import summarise

if TYPE_CHECKING:
    from selfcal.estimators.fitted import FittedClassifier

MAX_ROWS = 20_000
"""Rows of a report that is made each time a classifier is displayed."""
RESAMPLES = 200


def out_of_fold_report(clf: FittedClassifier) -> Report | None:
    """A report on the predictions for training rows by networks that were not trained on them, if there are any.

    There are none of a method that trains one network, nor of a model that was loaded; and those of an ensemble are
    not the predictions of the network distilled from it, nor those corrected for label noise. With weights,
    probabilities are calibrated for rows as often as they are weighted, which a report does not take into account.
    """
    known = getattr(clf, "out_of_fold_", None)
    if known is None or clf.n_networks is not None or clf.noisy_labels or clf._weighted:
        return None
    rows = np.flatnonzero(~np.isnan(known[:, 0]))
    if not len(rows):
        return None
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MAX_ROWS, replace=False))
    judged = Predictions.from_probabilities(clf._codes[rows], known[rows])
    return summarise(
        {clf.method_.name: judged},
        title="Calibration on out-of-fold predictions",
        subtitle="Of the training rows, each by members that were not trained on it. Weights and temperature of the "
        "pool were chosen on the same rows, so new rows may do slightly worse.",
        classes=clf.classes_,
        n_resamples=RESAMPLES,
    )


def classifier_html(clf: FittedClassifier) -> str:
    """The diagram, and below it the report on out-of-fold predictions or how to get one."""
    diagram: str = estimator_html_repr(clf)
    if not clf.__sklearn_is_fitted__():
        return diagram
    judged = out_of_fold_report(clf)
    return diagram + (_known(clf) if judged is None else judged._repr_html_())


def _known(clf: FittedClassifier) -> str:
    losses = clf.history_.selection_loss if hasattr(clf, "history_") else ()
    facts = [f"Method {clf.method_.name}" if hasattr(clf, "method_") else "A method of its own"]
    facts += [f"{len(clf.classes_):,} classes"]
    facts += [f"log loss on the rows for early stopping {np.min(losses):.4f}"] if len(losses) else []
    text = (
        f"{', '.join(facts)}. How well it is calibrated must be measured on rows that it has not seen: "
        "summarise({'mine': Predictions.of(clf, X_test, y_test)}) of selfcal.reporting displays it here."
    )
    return f'<p class="selfcal-report">{html.escape(text)}</p>'
