"""The novelty score of a table model: fitted on training rows, with a threshold from the held-out rows."""

from __future__ import annotations

from selfcal._support.splits import split_groups
from selfcal.conformal.guarantee import rows_for_coverage
from selfcal.conformal.novelty import NoveltyDetector
from selfcal.estimators.classifier import SelfCalibratedClassifier
from selfcal.reporting.content import Novelty
from selfcal.reporting.novelty import novelty_report, strange_columns
from selfcal.uncertainty._rows import drawn
from selfcal.workflows.table_training import TrainingRows

MAX_ROWS = 50_000
"""Maximum number of training rows that the score is fitted on."""

MAX_FEATURES = 1_000
"""Of more encoded columns, the score would take as much room and time as the model."""


def fit_novelty(
    classifier: SelfCalibratedClassifier, rows: TrainingRows, false_alarms: float, *, seed: int
) -> str | None:
    """Fit the score of a classifier that was trained on these rows, and choose the threshold.

    Returns:
        Why there is no score, if there cannot be one.
    """
    preprocessor = classifier.preprocessor_
    assert preprocessor is not None, "it was fitted on a table"
    width, n_held_out = len(preprocessor.feature_names), len(rows.parts.held_out)
    needed = rows_for_coverage(_usual(false_alarms))
    if n_held_out < needed:
        return (
            f"Rows unlike the training data will not be marked: {100 * false_alarms:g}% false alarms take at least "
            f"{needed:,} held-out rows; there are {n_held_out:,}. Provide more rows, or a higher rate (--novelty)."
        )
    if width > MAX_FEATURES:
        return (
            f"Rows unlike the training data will not be marked: that takes at most {MAX_FEATURES:,} encoded columns; "
            f"there are {width:,}. Use fewer columns or categories (--max-levels)."
        )
    fitted = rows.fitted
    some = fitted[drawn(rows.codes[fitted], MAX_ROWS, seed)]
    values, held_out = (preprocessor.transform(rows.table[part]) for part in (some, rows.parts.held_out))
    classifier.fit_novelty_encoded(values, rows.codes[some], held_out, false_alarms=false_alarms)
    return None


def novelty_on_held_out(
    classifier: SelfCalibratedClassifier, rows: TrainingRows, *, seed: int
) -> Novelty | None:
    """How the score does on held-out rows: a threshold from one half of them, and what it marks in the other.

    None if there are too few rows for that.
    """
    preprocessor, detector = classifier.preprocessor_, classifier.novelty_
    assert preprocessor is not None, "it was fitted on a table"
    assert detector is not None, "the score was fitted before"
    held_out = rows.parts.held_out
    one, other = split_groups(rows.codes[held_out], rows.groups[held_out], (0.5, 0.5), seed=seed)
    if len(one) < rows_for_coverage(_usual(detector.false_alarms)) or not len(other):
        return None
    values = preprocessor.transform(rows.table[held_out])
    features = classifier.features_encoded(values)
    half = NoveltyDetector(None, detector.score, false_alarms=detector.false_alarms).fit(features[one])
    return novelty_report(
        half.is_novel(features[other]),
        score=type(detector.score).__name__,
        false_alarms=detector.false_alarms,
        chosen_on=len(one),
        columns=strange_columns(
            classifier.is_novel_encoded,
            values,
            detector.is_novel(features),
            columns=preprocessor.columns,
            seed=seed,
        ),
    )


def _usual(false_alarms: float) -> float:
    """The fraction of rows that are not flagged: 0.99, and not 0.98999..."""
    return float(f"{1 - false_alarms:.12g}")
