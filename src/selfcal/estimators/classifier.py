"""The scikit-learn estimator: arrays or data frames in, calibrated probabilities out."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import nn

from selfcal._support.checks import Float, Int
from selfcal._support.fingerprint import fingerprint
from selfcal.ensembles import Ensemble, NetworkCandidate
from selfcal.ensembles.fit import fit_ensemble
from selfcal.ensembles.selection import time_budget_note
from selfcal.ensembles.training import Rows
from selfcal.errors import ConfigError, TimeBudgetWarning
from selfcal.estimators.fitted import FittedClassifier
from selfcal.estimators.inputs import (
    Validation,
    class_codes,
    class_weights,
    counted_rows,
    feature_table,
    labels,
    named_classes,
    row_groups,
    row_weights,
    validation_rows,
)
from selfcal.estimators.scaling import Scaling
from selfcal.estimators.splits import Parts, hold_out, with_validation
from selfcal.estimators.tables import (
    check_names_unused,
    copies_of_rows,
    fitted_preprocessor,
    frame_of,
    remember_columns,
)
from selfcal.label_noise.audit import SMALLEST, LabelAudit, audit_labels
from selfcal.label_noise.corrected import NoiseCorrected
from selfcal.label_noise.transition import fit_noise_correction
from selfcal.optimizers import Adam
from selfcal.outer import SampleWeights
from selfcal.tabular.features import FeatureGroups
from selfcal.tabular.frames import Frame
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.training.engine import TrainingResult, train
from selfcal.training.recipe import Recipe

RATE = 0.005


class _Labelled(NamedTuple):
    """Label codes and weights of all rows, the weights of classes, the rows of positive weight, and the groups."""

    codes: Int
    weight: Float | None
    by_class: Float | None
    rows: Int
    groups: ArrayLike | None


class SelfCalibratedClassifier(FittedClassifier):
    """A neural-network classifier, trained by a named method so that its confidence can be trusted.

    `X` is an array of numbers, dense or sparse, or a table with numbers, text, categories, booleans, dates and
    missing values: a data frame of pandas, polars or pyarrow, or an array with text. The columns of a table are
    encoded as by `selfcal fit`, and a model that either has stored can be used by the other.

    A method for one network splits the rows into disjoint parts: for training, for the outer level (if the method has
    one), and for early stopping, which the post-hoc calibrator (if any) is fitted on as well. A method for several
    networks holds out other rows from each of them.

    Args:
        method: The name of a method, one of `recipes.names()` such as ``"auto"``, ``"bo4sc"`` or ``"temperature"``;
            or a `Recipe` or `Ensemble`, for instance ``recipes.bo4sc(outer_lr=0.05)``.
        network: A kind of network, one of `models.FOR_TABLES`, or a function ``(n_features, n_classes) -> nn.Module``
            that returns logits; by default the kinds of the method, or ``"mlp"``.
        hidden: Widths of the hidden layers; by default those of the kind of network, two of 64 for ``"mlp"``.
        learning_rate: Step size of the inner optimiser, Adam; by default 0.005 or, where several kinds of network
            are trained, the default of their kind (`ensembles.settings.DEFAULT_OPTIMIZERS`).
        batch_size: Rows per step and network; None takes all. ``"auto"`` is 256, but a method that trains one network
            takes up to 1024 rows at once.
        max_epochs: Passes over the training rows at most.
        early_stopping: Hold out rows and return to the state with the lowest log loss on them. Without it,
            training runs to the end.
        validation_fraction: Fraction of the rows held out from training if no validation data is given.
        patience: Evaluations on the held-out rows (every 10 steps, or every epoch if that is longer) without
            improvement before training stops; None never stops.
        class_weight: Weights of the classes, which multiply those of the rows: a dictionary by label, where a class
            that is left out has weight 1, or ``"balanced"`` for weights in inverse proportion to the number of rows.
            Probabilities are then calibrated for rows that occur as often as they are weighted, and no longer for
            rows as they are.
        noisy_labels: Whether labels given to `fit` may be wrong and predictions of the true labels are wanted. The
            predictions of a method that trains several networks are then corrected for the label noise that
            `suspect_labels` estimates, as far as the labels are evidence for it. Evaluated with labels that are wrong
            as often, they look overconfident.
        n_networks: 1 distils the ensemble of a method that trains several networks into a single one, which predicts
            many times faster; `distilled_` has the cost in log loss, for which all is trained once more without a
            fifth of the rows. None keeps the ensemble.
        time_budget: Seconds that `fit` may take to train several candidates, such as those of `auto`; with
            ``n_networks=1``, as many again to estimate its cost.
        n_jobs: Number of processes that train candidates at the same time: None is one, unless a
            `joblib.parallel_config` says otherwise, and -1 as many as there are processors. The result is the same
            unless the time budget is too short for all of them. A single candidate is trained by one process.
        standardize: Centre and scale each column of numbers by its mean and standard deviation in the training rows.
            If False, those of a data frame are scaled by all rows given to `fit`, and those of an array not at all.
        kinds: The kinds of columns of a data frame where they are not those inferred: ``"number"``, ``"boolean"``,
            ``"category"``, ``"date"`` or ``"drop"``, by column name; see `selfcal.tabular.inference.infer_schema`.
        random_state: Seeds the split, the network and the shuffling; None takes a fresh seed from the system. Global
            random streams of torch, NumPy and Python are neither used nor changed.
        verbose: Show a progress bar; by default only on a terminal.
        checkpoint_dir: A folder for the checkpoints of this fit only; the same fit with the same folder resumes
            where an earlier one ended. It needs a whole number as `random_state`. Classifiers that cannot be stored
            are trained again.

    Attributes:
        classes_: The class labels, in the order of the columns of `predict_proba`.
        preprocessor_: The `Preprocessor` that encodes the columns of a data frame; None after a fit on numbers.
        n_features_in_: The number of columns given to `fit`.
        feature_names_in_: Their names, if they have any.
        method_: The `Recipe` or `Ensemble` it was trained by.
        module_: The trained network, or the networks of an ensemble as one module.
        calibrator_: The fitted post-hoc calibrator, or None.
        novelty_: The `NoveltyDetector` of `fit_novelty`, or None.
        history_: The course of training, as plain arrays.
        n_iter_: Inner steps taken.
        best_iter_: The inner step whose state was kept.
        batch_reduced_: Number of times the batch size was halved because memory ran out.
        train_rows_: The rows of `X` that the network was trained on.
        outer_params_: The outer parameters as arrays, by name.
        selection_: For methods that train several networks: the candidates from the largest weight to the least, with
            their log loss on held-out rows and how many of the planned networks the time budget allowed.
        distilled_: With ``n_networks=1``, what it costs: ``log_loss`` of such a network and ``teacher_log_loss`` of
            the ensemble it learned from, their difference ``cost`` and its ``standard_error``. They were trained on
            ``training_rows`` of the rows and judged on the other ``held_out_rows``, which no part of them has seen;
            ``measured`` says so in words. The network that predicts is trained on all rows.
        out_of_fold_: For methods that train several networks: the probabilities of each row of `X` by networks that
            were not trained on it; NaN for rows that all networks were trained on.
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
        class_names: ArrayLike | None = None,
        feature_groups: FeatureGroups | None = None,
        preprocessor: Preprocessor | None = None,
    ) -> Self:
        """Train on a table and its labels.

        Args:
            X: A table, one row per sample: a data frame, or an array.
            y: Labels: strings, integers or booleans.
            sample_weight: One non-negative weight per row; a row of weight zero is left out.
            X_val: Validation rows to use instead of holding out rows of `X`; if the method needs rows for
                its outer level and for early stopping, they are split into two halves.
            y_val: Their labels.
            groups: A value for each row of `X`, equal for rows that belong together, such as visits of one patient:
                they are on one side of every split. By default copies of a row are, with a warning; see
                `selfcal.tabular.copies.find_copies`.
            groups_val: The same for `X_val`.
            class_names: The label of each class, if `y` and `y_val` hold codes 0, 1, ... of them, all of which occur.
            feature_groups: The columns of an array that encode one category, or mark a missing number: trees then
                split categories and know what is missing. For a data frame they are known.
            preprocessor: A fitted preprocessor to encode a data frame with; by default one is fitted on `X`, with the
                kinds of columns in `kinds`.
        """
        started = time.time()
        for name in ("_n_rows", "selection_", "out_of_fold_", "distilled_"):
            self.__dict__.pop(name, None)  # nothing of an old fit may meet the new classes
        self.check_settings()
        self.method_ = self._method()
        self.preprocessor_ = self.novelty_ = None
        seed = self._seed()
        frame = frame_of(X)
        cells = feature_table(self, X, reset=True) if frame is None else frame
        given, codes = class_codes(labels(y, len(cells)))
        self.classes_ = given if class_names is None else named_classes(given, class_names)
        by_class = class_weights(self.class_weight, self.classes_, codes)
        weight = row_weights(sample_weight, by_class, codes)
        rows = counted_rows(codes, weight)
        if isinstance(cells, Frame):
            self.preprocessor_ = preprocessor or fitted_preprocessor(cells, rows, self.kinds)
            remember_columns(self, self.preprocessor_)
            feature_groups = self.preprocessor_.groups
            groups = (
                copies_of_rows(cells.table, self.preprocessor_.schema, rows) if groups is None else groups
            )
            table = self.preprocessor_.transform(cells.table)
        else:
            check_names_unused(kinds=self.kinds, preprocessor=preprocessor)
            table = cells
        validation = validation_rows(partial(self._numbers, name="X_val"), given, X_val, y_val, groups_val)
        if validation is not None:
            self._check_validation_used()
        labelled = _Labelled(codes, weight, by_class, rows, groups)
        if isinstance(self.method_, Ensemble):
            self._fit_ensemble(self.method_, table, labelled, feature_groups, seed, started=started)
        else:
            self._fit_one(self.method_, table, labelled, validation, seed)
        self.data_fingerprint_ = fingerprint(*(part for part in (table, codes, weight) if part is not None))
        self._n_rows = len(table)
        return self

    def _fit_one(
        self, recipe: Recipe, table: Float, labelled: _Labelled, validation: Validation | None, seed: int
    ) -> None:
        """One network, with rows held out for the outer level and for early stopping.

        A post-hoc calibrator is fitted on the rows for early stopping: separate rows, half as many, are worse.
        """
        codes, weight, rows, groups = labelled.codes, labelled.weight, labelled.rows, labelled.groups
        stops = bool(self.early_stopping)
        needs = {"outer": recipe.is_bilevel or (recipe.needs_outer_data and not stops), "selection": stops}
        if validation is None:
            divided = any(needs.values())
            units = row_groups(self, table, rows, groups) if divided else np.arange(len(table))
            parts = hold_out(codes, units, rows, self.validation_fraction, **needs, seed=seed)
        else:
            parts = with_validation(rows, validation.codes, validation.groups, len(table), **needs, seed=seed)
        if recipe.needs_outer_data and parts.outer is None:
            parts = replace(parts, outer=parts.selection)
        self._fit_scaling(table[parts.train], None if weight is None else weight[parts.train])
        data = Rows(self._tensor(table), codes, weight)
        if validation is not None:
            if weight is not None:
                by_class = np.ones(len(self.classes_)) if labelled.by_class is None else labelled.by_class
                weight = np.concatenate([weight, by_class[validation.codes]])
            data = Rows(
                torch.cat([data.x, self._tensor(validation.table, "X_val")]),
                np.concatenate([codes, validation.codes]),
                weight,
            )
        result = self._train(recipe, data, parts, seed)
        self.module_ = result.module
        self.calibrator_ = result.calibrator
        self.train_rows_ = parts.train
        self._remember(recipe, result)

    def _fit_ensemble(
        self,
        ensemble: Ensemble,
        table: Float,
        labelled: _Labelled,
        feature_groups: FeatureGroups | None,
        seed: int,
        *,
        started: float,
    ) -> None:
        """Several models, each trained on a part of the rows of positive weight."""
        rows = labelled.rows
        codes, weight = labelled.codes[rows], None if labelled.weight is None else labelled.weight[rows]
        self._fit_scaling(table[rows], weight)
        groups = row_groups(self, table, rows, labelled.groups)
        kind = self._kind()
        fitted = fit_ensemble(
            ensemble if kind is None else ensemble.with_network(kind),
            Rows(self._tensor(table)[rows], codes, weight, feature_groups),
            groups[rows],
            self._member_settings(len(self.classes_), seed),
            time_budget=self.time_budget,
            started=started,
            one_network=self.n_networks is not None,
            n_jobs=self.n_jobs,
        )
        self.module_ = fitted.module
        self.calibrator_ = None
        self.selection_ = fitted.records
        if note := time_budget_note(fitted.records, self.time_budget):
            warnings.warn(note, TimeBudgetWarning, stacklevel=3)  # the caller of `fit`
        self.out_of_fold_ = np.full((len(table), len(self.classes_)), np.nan)
        self.out_of_fold_[rows] = fitted.probs
        self.train_rows_ = rows
        self._codes, self._weighted = labelled.codes, labelled.weight is not None
        self._remember(
            fitted.best.recipe if isinstance(fitted.best, NetworkCandidate) else None, fitted.result
        )
        if fitted.distilled is not None:
            self.distilled_ = fitted.distilled
        if self.noisy_labels:
            self.module_ = self._noise_corrected(self.module_)

    def _noise_corrected(self, network: nn.Module) -> NoiseCorrected:
        """The network, corrected for the noise in the labels it was trained on."""
        matrix, power = fit_noise_correction(
            self._known_out_of_fold(), self._codes, self.suspect_labels().transition
        )
        return NoiseCorrected(network, torch.from_numpy(matrix).float(), power).eval()

    def _remember(self, recipe: Recipe | None, result: TrainingResult) -> None:
        self._outer_model = None if recipe is None else recipe.outer_model
        self.history_ = result.history
        self.n_iter_ = result.n_steps
        self.best_iter_ = result.best_step
        self.batch_reduced_ = len(result.history.reduction_step)
        self.outer_params_ = {name: v.detach().cpu().numpy() for name, v in result.outer_params.items()}

    @property
    def sample_weights_(self) -> Float:
        """The learned weight of each row of `X` given to `fit`; NaN for held-out rows and rows of weight zero."""
        check_is_fitted(self)
        model = getattr(self, "_outer_model", None)
        if not isinstance(model, SampleWeights):
            raise AttributeError(f"Method {self.method_.name!r} learns no sample weights.")
        values = model.values({name: torch.from_numpy(v) for name, v in self.outer_params_.items()})
        weights = np.full(self._n_rows, np.nan)
        weights[self.train_rows_] = values.numpy()
        return weights

    def suspect_labels(self, *, false_alarms: float = 0.1) -> LabelAudit:
        """Rows given to `fit` whose labels look wrong to networks that were not trained on them.

        Args:
            false_alarms: The largest expected fraction of correct labels among the flagged rows, under the
                assumptions of `audit_labels`; no row is flagged where the noise is not evident.

        Returns:
            A `LabelAudit`: all rows from the most suspect to the least, and those flagged.

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
                "suspect_labels needs out-of-fold predictions: fit with method='auto' or 'crossfit', and call it "
                "before the classifier is stored."
            )
        audit = audit_labels(self._known_out_of_fold(), self._codes, false_alarms=false_alarms)
        return replace(audit, classes=self.classes_)

    def _known_out_of_fold(self) -> Float:
        """Out-of-fold probabilities; a row that all networks were trained on gets its label, which is trusted."""
        probs = self.out_of_fold_.copy()
        unknown = np.flatnonzero(np.isnan(probs[:, 0]))
        probs[unknown] = 0.0
        probs[unknown, self._codes[unknown]] = 1.0
        np.maximum(probs, SMALLEST, out=probs)
        return probs / probs.sum(axis=1, keepdims=True)

    def _check_validation_used(self) -> None:
        reason = None
        if isinstance(self.method_, Ensemble):
            reason = f"method {self.method_.name!r} holds out rows of X by itself. Add X_val to X."
        elif not (self.method_.needs_outer_data or self.early_stopping):
            reason = f"method {self.method_.name!r} with early_stopping=False holds out no rows."
        if reason is not None:
            warnings.warn(f"X_val is not used: {reason}", stacklevel=3)

    def _fit_scaling(self, table: Float, weight: Float | None) -> None:
        if not self.standardize:
            self._scaling = Scaling.none(table.shape[1])
        else:
            # a rare category, once scaled, would be huge
            columns = None if self.preprocessor_ is None else self.preprocessor_.n_numbers
            self._scaling = Scaling.of(table, weight, columns=columns)

    def _train(self, recipe: Recipe, data: Rows, parts: Parts, seed: int) -> TrainingResult:
        batch_size = self._batch_size(len(parts.train))
        batches = data.batches(parts.train, batch_size, seed)
        return train(
            self._factory(len(self.classes_))(self._kind() or recipe.network, data.x[parts.train], seed),
            batches,
            None if parts.outer is None else data.batches(parts.outer, batch_size, seed + 1),
            None if parts.selection is None else data.batches(parts.selection, batch_size, 0),
            recipe=recipe,
            optimizer=Adam(lr=RATE if self.learning_rate is None else float(self.learning_rate)),
            max_steps=self.max_epochs * len(batches),
            patience=self.patience,
            seed=seed,
            progress=self.verbose,
            checkpoint=self.checkpoint_dir,
        )
