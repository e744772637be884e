"""The scikit-learn estimator: arrays in, honest probabilities out."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from selfcal import models
from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal._support.random_streams import seeded
from selfcal.ensembles.modules import NoiseCorrected
from selfcal.ensembles.selection import expected_seconds, left_out, mean_loss, race
from selfcal.ensembles.training import Rows
from selfcal.errors import ConfigError, DataError, TimeBudgetWarning
from selfcal.estimators.inputs import (
    Validation,
    class_codes,
    counted_rows,
    feature_table,
    fingerprint,
    labels,
    row_groups,
    validation_rows,
)
from selfcal.estimators.own_network import own_network
from selfcal.estimators.scaling import FARTHEST, Scaling
from selfcal.estimators.settings import ClassifierSettings
from selfcal.estimators.splits import Parts, keep_back, with_validation
from selfcal.label_noise.audit import SMALLEST, LabelAudit, audit_labels
from selfcal.label_noise.transition import fit_noise_correction
from selfcal.optimizers import Adam
from selfcal.outer import SampleWeights
from selfcal.storage import Storable
from selfcal.training.engine import TrainingResult, train
from selfcal.training.problem import forward_in_blocks

RATE = 0.005


class _Labelled(NamedTuple):
    """Label codes and sample weights of all rows, the numbers of those that count, and what groups them."""

    codes: Int
    weight: Float | None
    rows: Int
    groups: ArrayLike | None


class SelfCalibratedClassifier(Storable, ClassifierMixin, ClassifierSettings):
    """A neural-network classifier trained by a named method so that its confidence can be trusted.

    The rows are divided into disjoint parts: for training, for the outer level (if the method has one), and for early
    stopping and then the post-hoc calibrator (likewise).

    Args:
        method: The name of a recipe, one of `recipes.names()` such as ``"bo4sc"``, ``"standard"`` or
            ``"temperature"``, or a `Recipe`, for instance ``recipes.bo4sc(outer_lr=0.05)``.
        network: A kind of network, one of `models.FOR_TABLES`, or a function ``(n_features, n_classes) -> nn.Module``
            that returns logits; by default what the method tries, or ``"mlp"``.
        hidden: Widths of the hidden layers; by default two of 64 or, behind an encoding of columns, of 128.
        learning_rate: Step size of the inner optimiser, Adam; by default 0.005 or, where several kinds of network
            are trained, what suits their kind (`team_settings.USUAL`).
        batch_size: Rows per step and network; None takes all. ``"auto"`` is 256, but a method that trains one network
            takes up to 1024 rows at once.
        max_epochs: Passes over the training rows at most.
        early_stopping: Keep rows back and return to the state with the lowest log loss on them. Without it,
            training runs to the end.
        validation_fraction: Fraction of the rows kept back from training when no validation data is given.
        patience: Looks at the selection rows (every 10 steps, or every pass if that is longer) without
            improvement before training stops; None never stops.
        noisy_labels: Say so if labels given to `fit` may be wrong and the true ones are wanted: what a method that
            trains several networks says is then cleared of the noise that `suspect_labels` estimates. Judged by
            labels that are wrong as often, such answers look too sure.
        n_networks: 1 has the networks of a method that trains several taught to a single one, which answers many
            times faster; `distilled_` tells what that costs. None keeps them all.
        time_budget: Seconds that a race between several kinds of network may take.
        standardize: Centre and scale each column by its training mean and standard deviation.
        random_state: Seeds the split, the network and the shuffling; None takes a fresh seed from the system. Global
            random streams of torch, NumPy and Python are neither used nor changed.
        verbose: Show a progress bar; by default only on a terminal.
        checkpoint_dir: A folder for this fit alone, where it saves itself as it goes; the same fit with the same
            folder goes on where an earlier one ended. It needs a whole number as `random_state`.

    Attributes:
        classes_: The class labels, in the order of the columns of `predict_proba`.
        module_: The trained network.
        calibrator_: The fitted post-hoc calibrator, or None.
        history_: What happened in training, as plain arrays.
        n_iter_: Inner steps taken.
        best_iter_: The inner step whose state was kept.
        batch_reduced_: How often the batch size was halved because memory ran out.
        train_rows_: Which rows of `X` the network was trained on.
        outer_params_: The outer parameters as arrays, by name.
        selection_: Of methods that train several networks: what was tried, from what counts most to what counts not
            at all, with the log loss on rows held out, and how many of the planned networks the time budget allowed.
        distilled_: With ``n_networks=1``, log losses on rows that the one network has not seen: its own, and that of
            the networks it was taught by, of which each judged rows it had not seen either.
        out_of_fold_: Of those methods: for each row of `X`, the probabilities that networks gave it which had not
            been trained on it; NaN for rows that all were trained on.
        data_fingerprint_: A SHA-256 of `X`, the codes of `y` and the weights.

    Example:
        >>> from selfcal.datasets import Blobs
        >>> X, y = Blobs(std=1.7).sample(500, seed=0)
        >>> clf = SelfCalibratedClassifier(method="bo4sc", random_state=0).fit(X, y)
        >>> clf.predict_proba(X[:2]).shape
        (2, 5)
        >>> bool((clf.confidence(X) <= 1).all())
        True
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        groups_val: ArrayLike | None = None,
    ) -> Self:
        """Train on a table and its labels.

        Args:
            X: Numbers, one row per sample.
            y: Labels: strings, integers or booleans.
            sample_weight: How much each row counts, relative to the others; a row of weight zero is left out.
            X_val: Validation rows to use instead of keeping back rows of `X`; if the method needs rows for
                its outer level and for early stopping, they are divided in two halves.
            y_val: Their labels.
            groups: A value for each row of `X`, equal for rows that belong together, such as visits of one patient:
                they are on one side of every split. By default copies of a row are, with a warning; see
                `selfcal.tabular.copies.find_copies`.
            groups_val: The same for `X_val`.
        """
        for name in ("_n_rows", "selection_", "out_of_fold_", "distilled_"):
            self.__dict__.pop(name, None)  # nothing of an old fit may meet the new classes
        self._check_settings()
        self.recipe_ = self._recipe()
        seed = self._seed()
        table = feature_table(self, X, reset=True)
        self.classes_, codes = class_codes(labels(y, len(table)))
        weight = checks.sample_weights(sample_weight, len(table))
        if weight is not None:
            weight = weight / weight.max()  # no sum of weights overflows, and only their ratios matter
        rows = counted_rows(codes, weight)
        validation = validation_rows(self, self.classes_, X_val, y_val, groups_val)
        if validation is not None:
            self._check_validation_used()
        labelled = _Labelled(codes, weight, rows, groups)
        if self.recipe_.splitter is not None:
            self._fit_ensemble(table, labelled, seed)
        else:
            self._fit_one(table, labelled, validation, seed)
        self.data_fingerprint_ = fingerprint(table, codes, weight)
        self._n_rows = len(table)
        return self

    def _fit_one(self, table: Float, labelled: _Labelled, validation: Validation | None, seed: int) -> None:
        """One network, with rows kept back for the outer level and for early stopping.

        A post-hoc calibrator takes the rows that decided when to stop: half as many of its own serve it worse.
        """
        codes, weight, rows, groups = labelled
        stops, bilevel = bool(self.early_stopping), self.recipe_.is_bilevel
        needs = {"outer": bilevel or (self.recipe_.needs_outer_data and not stops), "selection": stops}
        if validation is None:
            divided = any(needs.values())
            units = row_groups(self, table, rows, groups) if divided else np.arange(len(table))
            parts = keep_back(codes, units, rows, self.validation_fraction, **needs, seed=seed)
        else:
            parts = with_validation(rows, validation.codes, validation.groups, len(table), **needs, seed=seed)
        if self.recipe_.needs_outer_data and parts.outer is None:
            parts = replace(parts, outer=parts.selection)
        self._fit_scaling(table[parts.train], None if weight is None else weight[parts.train])
        data = Rows(self._tensor(table), codes, weight)
        if validation is not None:
            ones = np.ones(len(validation.codes))
            data = Rows(
                torch.cat([data.x, self._tensor(validation.table, "X_val")]),
                np.concatenate([codes, validation.codes]),
                None if weight is None else np.concatenate([weight, ones]),
            )
        result = self._train(data, parts, seed)
        self.module_ = result.module
        self.calibrator_ = result.calibrator
        self.train_rows_ = parts.train
        self._remember(result)

    def _fit_ensemble(self, table: Float, labelled: _Labelled, seed: int) -> None:
        """Several networks, which are trained on shares of the rows that count and answer as one."""
        assert self.recipe_.splitter is not None
        rows = labelled.rows
        codes, weight = labelled.codes[rows], None if labelled.weight is None else labelled.weight[rows]
        self._fit_scaling(table[rows], weight)
        data = Rows(self._tensor(table)[rows], codes, weight)
        groups = row_groups(self, table, rows, labelled.groups)
        shares = self.recipe_.splitter.splits(codes, groups[rows], seed=seed)
        settings = self._member_settings(self._seeded_network, seed)
        candidates = self._candidates()
        costs = [
            expected_seconds(settings.make(candidate.network, data.x, seed), len(rows), len(shares))
            for candidate in candidates
        ]
        won = race(
            candidates,
            len(shares),
            functools.partial(settings.train, data, shares),
            codes,
            weight,
            costs=costs,
            budget=self.time_budget if len(candidates) > 1 else np.inf,
        )
        self.module_ = won.committee
        self.calibrator_ = None
        self.selection_ = won.selection
        if told := left_out(won.selection, self.time_budget):
            warnings.warn(told, TimeBudgetWarning, stacklevel=3)  # the caller of `fit`
        self.out_of_fold_ = np.full((len(table), len(self.classes_)), np.nan)
        self.out_of_fold_[rows] = won.probs
        self.train_rows_ = rows
        self._codes = labelled.codes
        self._remember(won.result)
        if self.n_networks is not None:
            taught = settings.distil(won.committee, data, shares[0], won.selection[0]["network"])
            unseen = shares[0].held_out
            self.module_ = taught.module
            self.distilled_ = {
                "log_loss": float(taught.history.selection_loss.min()),
                "taught_by": mean_loss(won.probs[unseen], codes[unseen], None),
            }
        if self.noisy_labels:
            self.module_ = self._noise_corrected(self.module_)

    def _noise_corrected(self, network: nn.Module) -> NoiseCorrected:
        """The network, cleared of the noise in the labels it was taught by."""
        matrix, power = fit_noise_correction(
            self._known_out_of_fold(), self._codes, self.suspect_labels().transition
        )
        return NoiseCorrected(network, torch.from_numpy(matrix).float(), power).eval()

    def _remember(self, result: TrainingResult) -> None:
        self.history_ = result.history
        self.n_iter_ = result.n_steps
        self.best_iter_ = result.best_step
        self.batch_reduced_ = len(result.history.reduction_step)
        self.outer_params_ = {name: v.detach().cpu().numpy() for name, v in result.outer_params.items()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_rows")

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The chosen class of each row."""
        logits = self.logits(X)
        chosen = logits.argmax(axis=1) if self.calibrator_ is None else self.calibrator_.predict(logits)
        classes: NDArray[Any] = self.classes_
        return classes[chosen]

    def predict_proba(self, X: ArrayLike) -> Float:
        """The probability of each class."""
        logits = self.logits(X)
        if self.calibrator_ is not None:
            return self.calibrator_.predict_proba(logits)
        probs: Float = softmax(logits, axis=1)
        return probs

    def confidence(self, X: ArrayLike) -> Float:
        """The probability that the class chosen by `predict` is right."""
        logits = self.logits(X)
        if self.calibrator_ is not None:
            return self.calibrator_.confidence(logits)
        confidence: Float = softmax(logits, axis=1).max(axis=1)
        return confidence

    def logits(self, X: ArrayLike) -> Float:
        """The network's raw scores, before any calibration, of shape (rows, classes)."""
        check_is_fitted(self)
        x = self._tensor(feature_table(self, X, reset=False))
        logits: Float = forward_in_blocks(self.module_, x).double().numpy()
        wrong = ~np.isfinite(logits).all(axis=1)
        if wrong.any():
            raise DataError(
                f"The network gives no finite scores for row {int(np.argmax(wrong))} of X ({int(wrong.sum())} such "
                "rows). Look for extreme values in it."
            )
        return logits

    @property
    def sample_weights_(self) -> Float:
        """The learned weight of each row of `X` given to `fit`; NaN for rows not trained on.

        Those are the rows that were kept back, and rows of weight zero.
        """
        check_is_fitted(self)
        model = self.recipe_.outer_model
        if not isinstance(model, SampleWeights):
            raise AttributeError(f"Method {self.recipe_.name!r} learns no sample weights.")
        values = model.values({name: torch.from_numpy(v) for name, v in self.outer_params_.items()})
        weights = np.full(self._n_rows, np.nan)
        weights[self.train_rows_] = values.numpy()
        return weights

    def suspect_labels(self, *, false_alarms: float = 0.1) -> LabelAudit:
        """Rows given to `fit` whose labels look wrong, by networks that were not trained on them.

        Args:
            false_alarms: The largest expected share of right labels among the rows flagged.

        Returns:
            A `LabelAudit`: all rows by how suspicious they are, and those worth a look.

        Example:
            >>> from selfcal.datasets import Blobs
            >>> X, y = Blobs(std=1.3).sample(600, seed=0)
            >>> y[:30] = (y[:30] + 1) % 5
            >>> clf = SelfCalibratedClassifier("crossfit", network="mlp", random_state=0).fit(X, y)
            >>> worst = clf.suspect_labels().ranking[:30]
            >>> bool((worst < 30).mean() > 0.7)
            True
        """
        if not hasattr(self, "out_of_fold_"):
            check_is_fitted(self)
            raise ConfigError(
                "suspect_labels needs what networks say about rows they were not trained on: fit with method='auto' "
                "or 'crossfit', and ask before the classifier is stored."
            )
        audit = audit_labels(self._known_out_of_fold(), self._codes, false_alarms=false_alarms)
        return replace(audit, classes=self.classes_)

    def _known_out_of_fold(self) -> Float:
        """What was said out of fold; of a row that all networks know, nobody can tell, so its label is believed."""
        probs = self.out_of_fold_.copy()
        unknown = np.flatnonzero(np.isnan(probs[:, 0]))
        probs[unknown] = 0.0
        probs[unknown, self._codes[unknown]] = 1.0
        np.maximum(probs, SMALLEST, out=probs)
        return probs / probs.sum(axis=1, keepdims=True)

    def _check_validation_used(self) -> None:
        reason = None
        if self.recipe_.splitter is not None:
            reason = f"method {self.recipe_.name!r} holds rows of X out by itself. Add X_val to X."
        elif not (self.recipe_.needs_outer_data or self.early_stopping):
            reason = f"method {self.recipe_.name!r} with early_stopping=False keeps no rows back."
        if reason is not None:
            warnings.warn(f"X_val is not used: {reason}", stacklevel=3)

    def _fit_scaling(self, table: Float, weight: Float | None) -> None:
        self._scaling = Scaling.of(table, weight) if self.standardize else Scaling.none(table.shape[1])

    def _set_scaling(self, mean: Float, scale: Float) -> None:
        self._scaling = Scaling(mean, scale)

    def _tensor(self, table: Float, name: str = "X") -> Tensor:
        limit = f"within {FARTHEST:g} standard deviations of the training data"
        if not self.standardize:
            limit = f"within ±{FARTHEST:g} if standardize=False"
        return self._scaling.tensor(table, self, limit=limit, name=name)

    def _train(self, data: Rows, parts: Parts, seed: int) -> TrainingResult:
        batch_size = self._batch_size(len(parts.train))
        batches = data.batches(parts.train, batch_size, seed)
        kind = "mlp" if self.network is None else self.network
        module = self._seeded_network(kind, data.x[parts.train], seed)
        return train(
            module,
            batches,
            None if parts.outer is None else data.batches(parts.outer, batch_size, seed + 1),
            None if parts.selection is None else data.batches(parts.selection, batch_size, 0),
            recipe=self.recipe_,
            optimizer=Adam(lr=RATE if self.learning_rate is None else float(self.learning_rate)),
            max_steps=self.max_epochs * len(batches),
            patience=self.patience,
            seed=seed,
            progress=self.verbose,
            checkpoint=self.checkpoint_dir,
        )

    def _seeded_network(self, kind: object, x: Tensor, seed: int) -> nn.Module:
        with seeded(seed):
            return self._network(kind, x)

    def _network(self, kind: object, x: Tensor) -> nn.Module:
        if isinstance(kind, str) and kind != "own":
            return models.for_table(kind, x, len(self.classes_), hidden=self.hidden)
        assert callable(self.network)
        return own_network(self.network, x, len(self.classes_))
