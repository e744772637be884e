"""A classifier that predicts sets of classes."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.conformal.guarantee import (
    CoverageGuarantee,
    Kind,
    conditional_text,
    known_coverage,
    out_of_fold_text,
    rank_for_coverage,
    split_text,
)
from selfcal.conformal.scores import SCORES, ConformityScore
from selfcal.errors import ConfigError, DataError, PromiseWarning
from selfcal.estimators.inputs import labels

Bool = NDArray[np.bool_]


class ConformalClassifier(BaseEstimator):
    """A fitted classifier that predicts the set of classes a row may be of, with a guaranteed coverage.

    A class is in the set of a row if its conformity score is among the lowest of the true classes of calibration
    rows, up to rank ``ceil((n + 1) coverage)``. Each new row is then covered with at least that probability, for any
    model, any number of rows and any distribution they are drawn from; between distinct scores, with at most
    ``1 / (n + 1)`` more. The estimator itself is never trained or changed.

    Args:
        estimator: A fitted classifier with `predict_proba` and `classes_`; None if `X` holds the probabilities.
        coverage: The fraction of new rows whose set contains the true class, in (0, 1).
        score: "lac" (the smallest sets), "aps" (similar coverage of easy and difficult rows) or "raps" (that, with
            smaller sets of many classes); or an object such as ``RAPS(penalty=0.05)``.
        randomized: Draw one number per row to break ties and, for "aps" and "raps", to count only a part of the
            probability of the class itself: the coverage is then exact, neither higher nor lower, with ties of any
            size. By default sets depend on the row alone, and ties raise the coverage.
        per_class: Guarantee the coverage for the rows of each true class, by a threshold for each.
        classes: With ``estimator=None``, the label of each column of `X`, if labels are not codes.
        random_state: Seeds the draws of `randomized`; they go by the position of the row in `X`. None takes a fresh
            seed from the system at each call.

    Attributes:
        guarantee_: The guarantee, in words and numbers.
        classes_: The class labels, in the order of the columns of `predict_set`.
        n_calibration_: Number of calibration rows.

    Example:
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from selfcal.datasets import Blobs
        >>> X, y = Blobs(std=1.7).sample(4000, seed=0)
        >>> model = GaussianNB().fit(X[:1000], y[:1000])
        >>> conformal = ConformalClassifier(model, coverage=0.95).fit(X[1000:3000], y[1000:3000])
        >>> conformal.predict_set(X[3000:3002])
        array([[False,  True, False,  True, False],
               [ True, False, False,  True, False]])
        >>> print(conformal.guarantee_)
        The set of a new row contains its true class with probability at least 95%, over draws of the calibration rows
        and of the row. With 2,000 calibration rows, the coverage of all new rows is at least 94.17% with probability
        95%.

    Reference: Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World (2005); Vovk, Conditional Validity of
    Inductive Conformal Predictors, ACML 2012.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        coverage: float = 0.95,
        score: str | ConformityScore = "lac",
        randomized: bool = False,
        per_class: bool = False,
        classes: ArrayLike | None = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.score = score
        self.randomized = randomized
        self.per_class = per_class
        self.classes = classes
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None) -> Self:
        """Choose the thresholds on rows that the estimator was not fitted on.

        Args:
            X: The input of the estimator, or probabilities if there is none.
            y: The labels.
            groups: A value for each row, known for new rows as well, such as the hospital: the coverage is then
                guaranteed within each group.
        """
        return self._calibrate(self._probs(X), y, groups, out_of_fold=False)

    def fit_out_of_fold(
        self, y: ArrayLike, probs: ArrayLike | None = None, *, groups: ArrayLike | None = None
    ) -> Self:
        """Choose the thresholds on out-of-fold predictions: no row is held out, and no coverage guaranteed.

        The scores come from models that did not see the row, and new rows are predicted by another model, trained on
        more rows. If that one is no worse, the coverage is about as asked for; nothing exact can be shown.

        Args:
            y: The labels of the rows that the estimator was fitted on.
            probs: Their out-of-fold probabilities; by default the estimator's `out_of_fold_`. Rows of NaN, which all
                models were trained on, are left out.
            groups: As in `fit`.
        """
        known = getattr(self.estimator, "out_of_fold_", None) if probs is None else probs
        if known is None:
            raise ConfigError(
                "Out-of-fold predictions are needed: pass probs, for instance from cross_val_predict, or an "
                "estimator with out_of_fold_, such as SelfCalibratedClassifier('auto') before it is stored."
            )
        p = checks.numbers(known, "probs")
        seen = ~np.isnan(p).all(axis=-1)
        target = labels(y, len(p))
        grouped = None if groups is None else self._group_values(groups, len(p))[seen]
        return self._calibrate(
            checks.probabilities(p[seen], "probs"), target[seen], grouped, out_of_fold=True
        )

    def predict_set(self, X: Any, *, groups: ArrayLike | None = None) -> Bool:
        """Whether each class (column) is in the set of each row; a set may be empty.

        Args:
            X: The input of the estimator, or probabilities if there is none.
            groups: The group of each row, if `fit` had groups; a new group has no guarantee but the set of all.
        """
        check_is_fitted(self)
        probs = self._probs(X)
        if probs.shape[1] != len(self.classes_):
            raise DataError(
                f"Probabilities must have {len(self.classes_)} columns as in fit; got {probs.shape[1]}."
            )
        if (groups is None) != (self._groups is None):
            raise ConfigError(
                "groups must be passed to predict_set exactly if fit had them; fit had "
                f"{'none. Leave them out' if self._groups is None else 'some. Pass the group of each row'}."
            )
        place = self._group_places(groups, len(probs))
        rng = np.random.default_rng(self.random_state)
        scores = self._score()(probs, self._share(len(probs), rng))
        tie = rng.random(len(probs)) if self.randomized else None
        included = np.ones(scores.shape, dtype=bool)
        for group in np.unique(place[place >= 0]):
            rows = place == group
            for code in range(scores.shape[1]):
                known = self._known[group, code if self.per_class else 0]
                included[rows, code] = self._accepts(
                    known, scores[rows, code], None if tie is None else tie[rows]
                )
        return included

    def __sklearn_clone__(self) -> ConformalClassifier:
        """The same estimator, which stays fitted, with no threshold chosen."""
        return ConformalClassifier(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_known")

    def _calibrate(self, probs: Float, y: ArrayLike, groups: ArrayLike | None, *, out_of_fold: bool) -> Self:
        known_coverage(self.coverage)
        checks.boolean("randomized", self.randomized)
        checks.boolean("per_class", self.per_class)
        score, classes = self._score(), self._class_labels(probs.shape[1])
        codes = checks.label_codes(labels(y, len(probs)), len(classes), classes, name="y")
        self.classes_, self.n_calibration_ = classes, len(codes)
        values = None if groups is None else self._group_values(groups, len(codes))
        self._groups = None if values is None else np.unique(values)
        place = self._group_places(values, len(codes))
        # the draws of calibration rows and new rows must be independent
        rng = np.random.default_rng(
            None
            if self.random_state is None
            else [checks.positive_int("random_state", self.random_state, low=0), 1]
        )
        true = score(probs, self._share(len(codes), rng))[np.arange(len(codes)), codes]
        category = codes if self.per_class else np.zeros_like(codes)
        n_groups = 1 if self._groups is None else len(self._groups)
        self._known = {
            (group, code): np.sort(true[(place == group) & (category == code)])
            for group in range(n_groups)
            for code in range(len(classes) if self.per_class else 1)
        }
        self.guarantee_ = self._guarantee(out_of_fold)
        if not self.guarantee_.informative:
            warnings.warn(self.guarantee_.text, PromiseWarning, stacklevel=3)
        return self

    def _accepts(self, known: Float, scores: Float, tie: Float | None) -> Bool:
        """Whether the smoothed rank of each score among the known ones is low enough."""
        n = len(known)
        rank = rank_for_coverage(self.coverage, n)
        if rank > n:  # too few rows: also a draw must not leave a class out
            return np.ones(len(scores), dtype=bool)
        if tie is None:
            return scores <= known[rank - 1]
        above = n - np.searchsorted(known, scores, side="right")
        equal = n - above - np.searchsorted(known, scores, side="left")
        return above + tie * (equal + 1) > (1 - self.coverage) * (n + 1)

    def _guarantee(self, out_of_fold: bool) -> CoverageGuarantee:
        n = self.n_calibration_
        few = [
            key
            for key, known in self._known.items()
            if rank_for_coverage(self.coverage, len(known)) > len(known)
        ]
        kind = self._kind()
        if out_of_fold:
            text = out_of_fold_text(self.coverage, n)
        elif kind is None:
            text = split_text(self.coverage, n, randomized=self.randomized)
        else:
            names = [self._name(key) for key in few]
            text = conditional_text(self.coverage, kind, names, randomized=self.randomized)
        return CoverageGuarantee(self.coverage, not out_of_fold, not few, n, text)

    def _kind(self) -> Kind | None:
        if self._groups is None:
            return "class" if self.per_class else None
        return "class of a group" if self.per_class else "group"

    def _name(self, key: tuple[int, int]) -> Any:
        """What a user calls a category of rows."""
        group, code = key
        if self._groups is None:
            return self.classes_[code]
        name = checks.plain(self._groups[group])
        return (name, checks.plain(self.classes_[code])) if self.per_class else name

    def _share(self, n: int, rng: np.random.Generator) -> Float:
        return rng.random(n) if self.randomized else np.ones(n)

    def _score(self) -> ConformityScore:
        if isinstance(self.score, ConformityScore):
            return self.score
        return SCORES[checks.one_of("score", self.score, SCORES)]

    def _probs(self, X: Any) -> Float:
        if self.estimator is None:
            return checks.probabilities(X, "X")
        if not (hasattr(self.estimator, "predict_proba") and hasattr(self.estimator, "classes_")):
            raise ConfigError(
                "estimator must be a fitted classifier with predict_proba and classes_, or None if X holds "
                f"probabilities; got {self.estimator!r}. Fit it first, on other rows."
            )
        return checks.probabilities(self.estimator.predict_proba(X), "predict_proba(X)")

    def _class_labels(self, n_classes: int) -> NDArray[Any]:
        own = getattr(self.estimator, "classes_", None)
        if own is not None and self.classes is not None:
            raise ConfigError("classes goes with estimator=None; this estimator has its own. Leave it out.")
        given = own if own is not None else self.classes
        return np.arange(n_classes) if given is None else np.asarray(given)

    def _group_values(self, groups: ArrayLike, n: int) -> NDArray[Any]:
        values = np.asarray(groups)
        if values.shape != (n,):
            raise DataError(f"groups must hold one value for each of the {n} rows; got shape {values.shape}.")
        return values

    def _group_places(self, groups: ArrayLike | None, n: int) -> Int:
        """Return the number of each row's group, -1 for groups without calibration rows."""
        if groups is None or self._groups is None:
            return np.zeros(n, dtype=np.int64)
        place = {name: number for number, name in enumerate(self._groups.tolist())}
        return np.array([place.get(v, -1) for v in self._group_values(groups, n).tolist()], dtype=np.int64)
