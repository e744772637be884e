"""A classifier with a reject option."""

from __future__ import annotations

import warnings
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import ConfigError, PromiseWarning
from selfcal.estimators.inputs import labels
from selfcal.metrics.intervals import known_level
from selfcal.reject.rules import Answers, Bool, Costs, rule_for
from selfcal.uncertainty import UncertaintyScore


class _Abstain:
    """The type of `ABSTAIN`: one object, equal to itself alone, that sorts after every class."""

    def __repr__(self) -> str:
        return "ABSTAIN"

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __reduce__(self) -> str:
        return "ABSTAIN"


ABSTAIN: Final = _Abstain()
"""The prediction for rejected rows. Copies and pickles are the same object."""


class SelectiveClassifier(BaseEstimator):
    """A fitted classifier with a reject option: it predicts where a guarantee holds, and abstains elsewhere.

    Exactly one of four targets is given:

    - `max_risk`: as many predictions as possible, with at most this fraction of them wrong. See
      `selfcal.reject.threshold_for_risk` for the proof.
    - `min_coverage`: at least this fraction of the rows is accepted, those of the highest confidence.
    - `costs`: the class of least expected cost, or rejection if that costs less (Chow's rule). The decision is as
      good as the probabilities are, so calibrate them first.
    - `window`: for two classes, rejection where the probability of the second lies between two numbers.

    Guarantees are about new rows from the distribution of the calibration rows, and hold with probability
    `confidence_level` over such sets of rows. The estimator itself is never trained or changed.

    Args:
        estimator: A fitted classifier with `predict_proba`. Its `predict` and `confidence` are used if it has them;
            otherwise the largest probability is the confidence, and its class the prediction.
        max_risk: The maximum fraction of wrong predictions among the accepted rows, in (0, 1).
        min_coverage: The minimum fraction of the rows to accept, in (0, 1].
        costs: The costs of a wrong prediction and of rejection.
        score: With `max_risk` or `min_coverage`, a score of `selfcal.uncertainty` that orders the rows instead of the
            confidence, fitted on the rows the estimator was trained on (or others, but not those of `fit`).
        window: Rows with low < P < high are rejected, where P is the probability of the second class.
        confidence_level: The probability with which the guarantee holds.
        per_class: With `max_risk`, one threshold per class, so that simultaneously for every class at most that
            fraction of its predictions are wrong; `1 - confidence_level` is divided equally between the classes.

    Attributes:
        threshold_: Rows with at least this confidence (or minus score) are accepted (infinity:
            none); one number per class if `per_class`. For `costs`, the largest expected cost of a prediction; for
            `window`, its two ends.
        guarantee_: The guarantee, as text and numbers.
        classes_: The class labels, in the order of the columns of `predict_proba`.

    Example:
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from selfcal.datasets import Blobs
        >>> X, y = Blobs(std=1.7).sample(4000, seed=0)
        >>> model = GaussianNB().fit(X[:1000], y[:1000])
        >>> careful = SelectiveClassifier(model, max_risk=0.05).fit(X[1000:3000], y[1000:3000])
        >>> careful.predict(X[3000:3004])
        array([ABSTAIN, ABSTAIN, 2, 0], dtype=object)
        >>> print(careful.guarantee_)
        With probability at least 95%, at most 5% of the answers given are wrong. Rows with a confidence of at least
        0.8544 are answered. Of 2,000 calibration rows, 1,356 (67.8%) were answered, 54 of them (3.98%) wrongly.

    Reference: Chow, On Optimum Recognition Error and Reject Tradeoff, IEEE Trans. Inf. Theory 16 (1970); Geifman,
    El-Yaniv, Selective Classification for Deep Neural Networks, NeurIPS 2017.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        max_risk: float | None = None,
        min_coverage: float | None = None,
        costs: Costs | None = None,
        window: tuple[float, float] | None = None,
        confidence_level: float = 0.95,
        per_class: bool = False,
        score: UncertaintyScore | None = None,
    ) -> None:
        self.estimator = estimator
        self.max_risk = max_risk
        self.min_coverage = min_coverage
        self.costs = costs
        self.window = window
        self.confidence_level = confidence_level
        self.per_class = per_class
        self.score = score

    def fit(self, X: Any, y: ArrayLike, sample_weight: None = None) -> Self:
        """Choose the threshold on rows that neither the estimator nor its calibrator was fitted on.

        Args:
            X: The input of the estimator.
            y: The labels, of classes the estimator knows.
            sample_weight: Not supported, since the exact bounds count rows; anything but None is an error.
        """
        if sample_weight is not None:
            raise ConfigError(
                "sample_weight must be None: the exact bounds count rows and have no weighted form. Draw "
                "calibration rows from the distribution of new rows, and leave sample_weight out."
            )
        known_level(self.confidence_level)
        rule = rule_for(
            max_risk=self.max_risk,
            min_coverage=self.min_coverage,
            costs=self.costs,
            window=self.window,
            per_class=self.per_class,
        )
        self._check_score()
        answers = self._answers(X)
        target = labels(y, len(answers))
        codes = checks.label_codes(target, len(answers.classes), answers.classes, name="y")
        self.threshold_, self.guarantee_ = rule.choose(answers, codes, self.confidence_level)
        self.classes_ = answers.classes
        self._rule = rule
        if not self.guarantee_.holds or np.isposinf(self.threshold_).any():
            warnings.warn(self.guarantee_.text, PromiseWarning, stacklevel=2)
        return self

    def predict(self, X: Any) -> NDArray[np.object_]:
        """The class of each row, or `ABSTAIN`, as an array of objects whatever the classes are."""
        codes, accepted = self._decide(X)
        answers = self.classes_.astype(object)[codes]
        answers[~accepted] = ABSTAIN
        return answers

    def accepts(self, X: Any) -> Bool:
        """Whether each row is accepted."""
        return self._decide(X)[1]

    def predict_proba(self, X: Any) -> Float:
        """The estimator's probability of each class, also for rejected rows."""
        check_is_fitted(self)
        return self._answers(X).probs

    def __sklearn_clone__(self) -> SelectiveClassifier:
        """The same estimator, which stays fitted, with no threshold chosen."""
        return SelectiveClassifier(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_rule")

    def _decide(self, X: Any) -> tuple[Any, Bool]:
        check_is_fitted(self)
        return self._rule.decide(self._answers(X), self.threshold_)

    def _check_score(self) -> None:
        if self.score is None:
            return
        if self.max_risk is None and self.min_coverage is None:
            raise ConfigError("score goes with max_risk or min_coverage; leave it out for costs and windows.")
        if not isinstance(self.score, UncertaintyScore):
            raise ConfigError(
                f"score must be an object of selfcal.uncertainty, such as Entropy(); got {self.score!r}."
            )

    def _answers(self, X: Any) -> Answers:
        if not (hasattr(self.estimator, "predict_proba") and hasattr(self.estimator, "classes_")):
            raise ConfigError(
                "estimator must be a fitted classifier with predict_proba and classes_; got "
                f"{self.estimator!r}. Fit it first, on other rows; wrap a torch module in a CalibratedModel."
            )
        return Answers(self.estimator, X, self.score)
