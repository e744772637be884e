"""Rejection rules: one small class per target of the reject option, with one interface."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.errors import ConfigError, DataError
from selfcal.metrics.intervals import mean_interval
from selfcal.reject.thresholds import (
    known_risk,
    lowest_for_coverage,
    lowest_for_risk,
    risk_bound,
    rows_needed,
    threshold_for_risk,
)
from selfcal.uncertainty import UncertaintyScore

Bool = NDArray[np.bool_]
Threshold = float | Float | tuple[float, float]
MAX_LISTED_CLASSES = 5
"""Maximum number of classes that a message lists before "and more"."""

TOO_MANY_WRONG = "Too many of the most confident answers are wrong, or there are too few rows."


@dataclass(frozen=True)
class Guarantee:
    """The guarantee for new rows from the same distribution, and the counts on the calibration rows.

    Attributes:
        aim: The target: "max_risk", "min_coverage", "costs" or "window".
        holds: Whether there is a guarantee; if not, every row is rejected.
        bound: The guaranteed maximum risk or, for "min_coverage", minimum coverage.
        confidence_level: The probability, over sets of calibration rows, with which the guarantee holds.
        n: Number of calibration rows.
        accepted: Number of accepted calibration rows.
        errors: Number of wrong predictions among those.
        text: The guarantee as a sentence; also `str(guarantee)`.
    """

    aim: Literal["max_risk", "min_coverage", "costs", "window"]
    holds: bool
    bound: float
    confidence_level: float
    n: int
    accepted: int
    errors: int
    text: str

    @property
    def coverage(self) -> float:
        """Fraction of the calibration rows that were accepted."""
        return self.accepted / self.n

    @property
    def risk(self) -> float:
        """Fraction of wrong predictions among the accepted calibration rows; NaN if there are none."""
        return self.errors / self.accepted if self.accepted else float("nan")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of wrong predictions and of rejection.

    Attributes:
        wrong: The cost of every wrong prediction, correct ones being free; or a matrix with the cost of predicting
            class j (column) where class i (row) is true, in the order of the estimator's `classes_`.
        abstain: The cost of rejecting a row.

    >>> Costs(wrong=10, abstain=1).table(2)
    array([[ 0., 10.],
           [10.,  0.]])
    """

    wrong: ArrayLike = 1.0
    abstain: float = 0.1

    def table(self, n_classes: int) -> Float:
        """The cost of each prediction (column) for each true class (row)."""
        cost = checks.numbers(self.wrong, "costs.wrong")
        if cost.ndim == 0:
            cost = cost * (1.0 - np.eye(n_classes))
        if cost.shape != (n_classes, n_classes) or not np.isfinite(cost).all():
            raise ConfigError(
                f"costs.wrong must be a finite number or a table of shape {(n_classes, n_classes)}, one row per true "
                f"and one column per chosen class; got {self.wrong!r}."
            )
        return cost


class Answers:
    """The predictions of a fitted classifier for some rows; each is computed once, when it is first needed."""

    def __init__(self, estimator: Any, X: Any, score: UncertaintyScore | None = None) -> None:
        self.estimator, self.X, self.score = estimator, X, score
        self.classes: NDArray[Any] = np.asarray(estimator.classes_)

    def __len__(self) -> int:
        return len(self.chosen)

    @cached_property
    def probs(self) -> Float:
        """The probability of each class."""
        return checks.probabilities(self.estimator.predict_proba(self.X), "predict_proba(X)")

    @cached_property
    def chosen(self) -> Int:
        """The predicted class, as a code."""
        if not hasattr(self.estimator, "predict"):
            return self.probs.argmax(axis=1)
        return checks.label_codes(
            self.estimator.predict(self.X), len(self.classes), self.classes, name="predict(X)"
        )

    @cached_property
    def confidence(self) -> Float:
        """The confidence in the predicted class; with a score, minus the doubt."""
        if self.score is not None:
            return -self._doubt(self.score)
        if hasattr(self.estimator, "confidence"):
            return checks.unit_interval(self.estimator.confidence(self.X), "confidence(X)")
        return self.probs[np.arange(len(self.chosen)), self.chosen]

    @property
    def lowest(self) -> float:
        """The threshold that accepts all rows."""
        return 0.0 if self.score is None else -math.inf

    def acceptance_text(self, threshold: float) -> str:
        """Which rows are accepted."""
        if self.score is None or threshold == self.lowest:
            return _acceptance_text(max(0.0, threshold))
        return f"Rows whose {type(self.score).__name__} is at most {-threshold:.6g} are answered."

    def _doubt(self, score: UncertaintyScore) -> Float:
        doubt = checks.numbers(score.of(self.estimator, self.X), "score")
        if doubt.shape != (len(self.chosen),) or not np.isfinite(doubt).all():
            raise DataError(
                f"score must return a finite number for each of {len(self.chosen)} rows; got shape {doubt.shape}, "
                f"{int((~np.isfinite(doubt)).sum())} of them not finite."
            )
        return doubt


def risk_guarantee(
    confidence: ArrayLike, wrong: ArrayLike, *, max_risk: float, level: float = 0.95
) -> tuple[float, Guarantee]:
    """Choose a threshold from predictions on rows the model was not fitted on.

    Args:
        confidence: The confidence of each prediction, in [0, 1].
        wrong: Whether each prediction was wrong.
        max_risk: The largest fraction of wrong answers among those given, in (0, 1).
        level: The probability, over such sets of rows, with which the guarantee holds.

    Returns:
        The threshold, as `threshold_for_risk` finds it, and the guarantee.

    >>> confidence = np.linspace(0.99, 0.5, 1000)
    >>> threshold, guarantee = risk_guarantee(confidence, confidence < 0.6, max_risk=0.05)
    >>> round(threshold, 3), guarantee.accepted, guarantee.errors
    (0.585, 826, 30)
    """
    known_risk(max_risk)
    c, is_wrong = checks.unit_interval(confidence), np.asarray(wrong, dtype=bool)
    threshold = threshold_for_risk(is_wrong, c, max_risk=max_risk, level=level)
    return threshold, _guarantee_at(
        threshold, _acceptance_text(threshold), c, is_wrong, max_risk=max_risk, level=level
    )


class Rule(ABC):
    """A rejection rule: chooses a threshold on calibration rows, and accepts or rejects rows by it."""

    @abstractmethod
    def choose(self, answers: Answers, y: Int, level: float) -> tuple[Threshold, Guarantee]:
        """Return the threshold and its guarantee."""

    @abstractmethod
    def decide(self, answers: Answers, threshold: Any) -> tuple[Int, Bool]:
        """Return the predicted class of each row, as a code, and whether the row is accepted."""


@dataclass(frozen=True)
class MaxRisk(Rule):
    """Accept as many rows as possible with at most this risk, overall or for each predicted class."""

    max_risk: float
    per_class: bool = False

    def choose(self, answers: Answers, y: Int, level: float) -> tuple[Threshold, Guarantee]:
        wrong, confidence, chosen = answers.chosen != y, answers.confidence, answers.chosen
        if not self.per_class:
            options = {"max_risk": self.max_risk, "level": level}
            lowest = max(answers.lowest, lowest_for_risk(wrong, confidence, **options))
            said = answers.acceptance_text(lowest)
            return lowest, _guarantee_at(lowest, said, confidence, wrong, **options)
        level_of_each = 1 - (1 - level) / len(answers.classes)
        threshold = np.full(len(answers.classes), np.inf)
        for code in np.unique(chosen):
            of_class = chosen == code
            lowest = lowest_for_risk(
                wrong[of_class], confidence[of_class], max_risk=self.max_risk, level=level_of_each
            )
            threshold[code] = max(answers.lowest, lowest)
        holds = bool((threshold < np.inf).any())
        seen = _seen(wrong, self.decide(answers, threshold)[1])
        if holds:
            text = f"{self._promise(answers, threshold, level)} {_counts_text(seen)}"
        else:
            text = _refusal(self.max_risk, level, TOO_MANY_WRONG)
        return threshold, Guarantee("max_risk", holds, self.max_risk, level, *seen, text)

    def decide(self, answers: Answers, threshold: Any) -> tuple[Int, Bool]:
        limit = np.asarray(threshold)[answers.chosen] if self.per_class else threshold
        return answers.chosen, answers.confidence >= limit

    def _promise(self, answers: Answers, threshold: Float, level: float) -> str:
        never = answers.classes[np.isposinf(threshold)]
        silent = f" There are too few rows to ever answer {_listed(never)}." if len(never) else ""
        return (
            f"With probability at least {_percent(level)}, for all classes at once, at most "
            f"{_percent(self.max_risk)} of the answers that name the class are wrong.{silent}"
        )


@dataclass(frozen=True)
class MinCoverage(Rule):
    """Accept at least this fraction of the rows, those with the highest confidence."""

    min_coverage: float

    def choose(self, answers: Answers, y: Int, level: float) -> tuple[Threshold, Guarantee]:
        lowest = lowest_for_coverage(answers.confidence, min_coverage=self.min_coverage, level=level)
        threshold = max(answers.lowest, lowest)
        seen = _seen(answers.chosen != y, self.decide(answers, threshold)[1])
        text = (
            f"With probability at least {_percent(level)}, at least {_percent(self.min_coverage)} of the rows are "
            f"answered. {answers.acceptance_text(threshold)} {_counts_text(seen)}"
        )
        return threshold, Guarantee("min_coverage", True, self.min_coverage, level, *seen, text)

    def decide(self, answers: Answers, threshold: Any) -> tuple[Int, Bool]:
        return answers.chosen, answers.confidence >= threshold


@dataclass(frozen=True)
class Chow(Rule):
    """Predict the class of least expected cost, and accept the row if that costs no more than rejection."""

    costs: Costs

    def choose(self, answers: Answers, y: Int, level: float) -> tuple[Threshold, Guarantee]:
        abstain = float(checks.in_range("costs.abstain", self.costs.abstain))
        codes, accepted = self.decide(answers, abstain)
        paid = self.costs.table(len(answers.classes))[y, codes]
        mean = mean_interval(np.where(accepted, paid, abstain), level=level)
        measured = f" A row cost {mean} on average, and {paid.mean():.4f} had each been answered."
        return abstain, _measured("costs", codes != y, accepted, level, measured)

    def decide(self, answers: Answers, threshold: Any) -> tuple[Int, Bool]:
        expected = answers.probs @ self.costs.table(len(answers.classes))
        return expected.argmin(axis=1), expected.min(axis=1) <= threshold


@dataclass(frozen=True)
class Window(Rule):
    """Reject rows where the probability of the second of two classes lies between two numbers."""

    low: float
    high: float

    def choose(self, answers: Answers, y: Int, level: float) -> tuple[Threshold, Guarantee]:
        if len(answers.classes) != 2:
            raise ConfigError(
                f"window is for two classes; the estimator has {len(answers.classes)}. Use max_risk or min_coverage."
            )
        threshold = (self.low, self.high)
        codes, accepted = self.decide(answers, threshold)
        return threshold, _measured("window", codes != y, accepted, level)

    def decide(self, answers: Answers, threshold: Any) -> tuple[Int, Bool]:
        low, high = threshold
        second = answers.probs[:, 1]
        return (second >= high).astype(np.int64), (second <= low) | (second >= high)


def _guarantee_at(
    threshold: float, acceptance: str, confidence: Float, wrong: Bool, *, max_risk: float, level: float
) -> Guarantee:
    """Return the guarantee of a maximum risk at the threshold found for it."""
    seen, holds = _seen(wrong, confidence >= threshold), threshold < math.inf
    if holds:
        text = (
            f"With probability at least {_percent(level)}, at most {_percent(max_risk)} of the answers given are "
            f"wrong. {acceptance} {_counts_text(seen)}"
        )
    else:
        needed, n = rows_needed(max_risk, level), len(confidence)
        too_few = f"That takes at least {needed:,} rows, none of them wrong; there are {n:,}."
        text = _refusal(max_risk, level, TOO_MANY_WRONG if n >= needed else too_few)
    return Guarantee("max_risk", holds, max_risk, level, *seen, text)


def rule_for(
    *, max_risk: Any, min_coverage: Any, costs: Any, window: Any, per_class: Any
) -> MaxRisk | MinCoverage | Chow | Window:
    """Return the rule for the one target that is given, with its settings checked."""
    aims = {"max_risk": max_risk, "min_coverage": min_coverage, "costs": costs, "window": window}
    given = [name for name, value in aims.items() if value is not None]
    if len(given) != 1:
        raise ConfigError(
            f"Expected exactly one of {', '.join(aims)}; got {' and '.join(given) or 'none of them'}. "
            "Pass one of them, such as max_risk=0.05."
        )
    if checks.boolean("per_class", per_class) and max_risk is None:
        raise ConfigError(f"per_class=True goes with max_risk; got {given[0]}. Leave per_class out.")
    if max_risk is not None:
        known_risk(max_risk)
        return MaxRisk(max_risk, bool(per_class))
    if min_coverage is not None:
        checks.in_range("min_coverage", min_coverage, 0.0, 1.0, open_low=True)
        return MinCoverage(min_coverage)
    if costs is not None:
        if not isinstance(costs, Costs):
            raise ConfigError(f"costs must be a Costs, such as Costs(wrong=1, abstain=0.2); got {costs!r}.")
        return Chow(costs)
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ConfigError(f"window must be two numbers, such as (0.3, 0.7); got {window!r}.")
    low, high = (float(checks.in_range(f"window[{i}]", end, 0.0, 1.0)) for i, end in enumerate(window))
    if low >= high:
        raise ConfigError(f"window must run from a smaller to a larger number; got {window!r}. Swap them.")
    return Window(low, high)


def _refusal(max_risk: float, level: float, reason: str) -> str:
    return (
        f"No threshold guarantees, with probability {_percent(level)}, that at most {_percent(max_risk)} of the "
        f"answers are wrong; so no row is answered. {reason} Pass a higher max_risk, a lower "
        "confidence_level, or more calibration rows."
    )


def _seen(wrong: Bool, accepted: Bool) -> tuple[int, int, int]:
    """Return the number of rows, of accepted rows, and of errors among those."""
    return len(wrong), int(accepted.sum()), int((wrong & accepted).sum())


def _measured(
    aim: Literal["costs", "window"], wrong: Bool, accepted: Bool, level: float, more: str = ""
) -> Guarantee:
    """Return the guarantee of a rule that does not depend on the labels: its risk is simply measured."""
    seen = _seen(wrong, accepted)
    bound = risk_bound(seen[2], seen[1], level)
    text = (
        f"With probability at least {_percent(level)}, at most {_percent(math.ceil(1e4 * bound) / 1e4)} of the "
        f"answers given are wrong. {_counts_text(seen)}{more}"
    )
    if not seen[1]:
        text = f"There is no guarantee: no calibration row was answered.{more}"
    return Guarantee(aim, seen[1] > 0, bound, level, *seen, text)


def _acceptance_text(threshold: float) -> str:
    some = f"Rows with a confidence of at least {threshold:.4f} are answered."
    return some if threshold > 0 else "Every row is answered."


def _counts_text(seen: tuple[int, int, int]) -> str:
    n, answered, errors = seen
    wrong = f", {errors:,} of them ({_percent(errors / answered, 3)}) wrongly" if answered else ""
    return f"Of {n:,} calibration rows, {answered:,} ({_percent(answered / n, 3)}) were answered{wrong}."


def _percent(fraction: float, digits: int = 6) -> str:
    return f"{100 * fraction:.{digits}g}%"


def _listed(classes: NDArray[Any]) -> str:
    names = ", ".join(repr(checks.plain(name)) for name in classes[:MAX_LISTED_CLASSES])
    return names + (
        f" and {len(classes) - MAX_LISTED_CLASSES} more" if len(classes) > MAX_LISTED_CLASSES else ""
    )
