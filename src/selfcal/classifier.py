"""The scikit-learn estimator: arrays in, honest probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from selfcal import _checks, models, recipes
from selfcal._checks import Float
from selfcal._inputs import class_codes, feature_table, labels
from selfcal._parts import Parts, Rows, keep_back, with_validation
from selfcal.batches import TensorBatches
from selfcal.engine import TrainingResult, train
from selfcal.errors import ConfigError
from selfcal.interfaces import Recipe
from selfcal.optimizers import Adam
from selfcal.outer import SampleWeights

FULL_BATCH_UP_TO = 1024
PREDICT_ROWS = 8192


class SelfCalibratedClassifier(ClassifierMixin, BaseEstimator):
    """A neural-network classifier trained by a named method so that its confidence can be trusted.

    The rows are divided into three disjoint parts: for training, for the outer level or the post-hoc
    calibrator (if the method has one), and for early stopping.

    Args:
        method: The name of a recipe (``"bo4sc"``, ``"standard"``, ``"isoreg"``) or a `Recipe`, for instance
            ``recipes.bo4sc(outer_lr=0.05)``.
        network: A function ``(n_features, n_classes) -> nn.Module`` that returns logits; by default an MLP.
        hidden: Widths of the hidden layers of the default network.
        learning_rate: Step size of the inner optimiser, Adam.
        batch_size: Rows per step; ``"auto"`` takes all rows up to 1024 and 256 beyond; None always takes all.
        max_epochs: Passes over the training rows at most.
        early_stopping: Keep rows back and return to the state with the lowest log loss on them. Without it,
            training runs to the end.
        validation_fraction: Share of the rows kept back from training when no validation data is given.
        patience: Looks at the selection rows (every 10 steps, or every pass if that is longer) without
            improvement before training stops.
        standardize: Centre and scale each column by its training mean and standard deviation.
        random_state: Seeds the split, the network and the shuffling.
        verbose: Show a progress bar; by default only on a terminal.

    Attributes:
        classes_: The class labels, in the order of the columns of `predict_proba`.
        module_: The trained network.
        calibrator_: The fitted post-hoc calibrator, or None.
        history_: What happened in training, as plain arrays.
        n_iter_: Inner steps taken.
        train_rows_: Which rows of `X` the network was trained on.
        outer_params_: The outer parameters as arrays, by name.

    Example:
        >>> from selfcal.datasets import Blobs
        >>> X, y = Blobs(std=1.7).sample(500, seed=0)
        >>> clf = SelfCalibratedClassifier(method="bo4sc", random_state=0).fit(X, y)
        >>> clf.predict_proba(X[:2]).shape
        (2, 5)
        >>> bool((clf.confidence(X) <= 1).all())
        True
    """

    def __init__(
        self,
        method: str | Recipe = "bo4sc",
        *,
        network: Callable[[int, int], nn.Module] | None = None,
        hidden: Sequence[int] = (64, 64),
        learning_rate: float = 0.005,
        batch_size: int | str | None = "auto",
        max_epochs: int = 500,
        early_stopping: bool = True,
        validation_fraction: float = 0.3,
        patience: int = 10,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.method = method
        self.network = network
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Train on a table and its labels.

        Args:
            X: Numbers, one row per sample.
            y: Labels: strings, integers or booleans.
            sample_weight: How much each row counts.
            X_val: Validation rows to use instead of keeping back rows of `X`; if the method needs rows for
                its outer level and for early stopping, they are divided in two halves.
            y_val: Their labels.
        """
        self.recipe_ = self._recipe()
        table = feature_table(self, X, reset=True)
        target = labels(y, len(table))
        weight = _checks.sample_weights(sample_weight, len(table))
        self.classes_, codes = class_codes(target)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        parts = self._parts(Rows(table, codes, weight), X_val, y_val, seed)
        self._fit_scaling(parts.train)
        result = self._train(parts, seed)
        self.module_ = result.module
        self.history_ = result.history
        self.n_iter_ = result.n_steps
        self.best_iter_ = result.best_step
        self.train_rows_ = parts.train_rows
        self.outer_params_ = {name: v.detach().cpu().numpy() for name, v in result.outer_params.items()}
        self.calibrator_ = None
        if self.recipe_.calibrator is not None and parts.outer is not None:
            self.calibrator_ = clone(self.recipe_.calibrator).fit(
                self._logits(parts.outer.x), parts.outer.y, parts.outer.weight
            )
        self._n_rows = len(table)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The chosen class of each row."""
        logits = self.logits(X)
        chosen = logits.argmax(axis=1) if self.calibrator_ is None else self.calibrator_.predict(logits)
        classes: NDArray[Any] = self.classes_
        return classes[chosen]

    def predict_proba(self, X: ArrayLike) -> Float:
        """The probability of each class."""
        logits = self.logits(X)
        return _softmax(logits) if self.calibrator_ is None else self.calibrator_.predict_proba(logits)

    def confidence(self, X: ArrayLike) -> Float:
        """The probability that the class chosen by `predict` is right."""
        logits = self.logits(X)
        if self.calibrator_ is None:
            return _softmax(logits).max(axis=1)
        return self.calibrator_.confidence(logits)

    def logits(self, X: ArrayLike) -> Float:
        """The network's raw scores, before any calibration, of shape (rows, classes)."""
        check_is_fitted(self)
        return self._logits(feature_table(self, X, reset=False))

    @property
    def sample_weights_(self) -> Float:
        """The learned weight of each row of `X` given to `fit`; NaN for rows kept back from training."""
        check_is_fitted(self)
        model = self.recipe_.outer_model
        if not isinstance(model, SampleWeights):
            raise AttributeError(f"Method {self.recipe_.name!r} learns no sample weights.")
        values = model.values({name: torch.from_numpy(v) for name, v in self.outer_params_.items()})
        weights = np.full(self._n_rows, np.nan)
        weights[self.train_rows_] = values.numpy()
        return weights

    def _recipe(self) -> Recipe:
        if isinstance(self.method, Recipe):
            return self.method
        if isinstance(self.method, str):
            return recipes.named(self.method)
        raise ConfigError(f"method must be a recipe name or a Recipe; got {self.method!r}.")

    def _train(self, parts: Parts, seed: int) -> TrainingResult:
        batch_size = self._batch_size(len(parts.train))
        batches = self._batches(parts.train, batch_size, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._network(parts.train.x.shape[1], len(self.classes_))
        return train(
            module,
            batches,
            self._batches(parts.outer, batch_size, seed + 1) if parts.outer else None,
            self._batches(parts.selection, None, 0) if parts.selection else None,
            recipe=self.recipe_,
            optimizer=Adam(lr=self.learning_rate),
            max_steps=_checks.positive_int("max_epochs", self.max_epochs) * len(batches),
            patience=self.patience,
            seed=seed,
            progress=self.verbose,
        )

    def _parts(self, data: Rows, X_val: ArrayLike | None, y_val: ArrayLike | None, seed: int) -> Parts:
        outer, selection = self.recipe_.needs_outer_data, bool(self.early_stopping)
        if X_val is None and y_val is None:
            share = _checks.in_range("validation_fraction", self.validation_fraction, 0, 0.9, open_low=True)
            return keep_back(data, share, outer=outer, selection=selection, seed=seed)
        if X_val is None or y_val is None:
            raise ConfigError("X_val and y_val go together; got only one of them.")
        table = feature_table(self, X_val, reset=False)
        codes = _checks.label_codes(labels(y_val, len(table)), len(self.classes_), self.classes_)
        return with_validation(data, Rows(table, codes), outer=outer, selection=selection, seed=seed)

    def _fit_scaling(self, rows: Rows) -> None:
        self._mean, self._scale = np.zeros(rows.x.shape[1]), np.ones(rows.x.shape[1])
        if self.standardize:
            self._mean = np.average(rows.x, axis=0, weights=rows.weight)
            spread = np.sqrt(np.average((rows.x - self._mean) ** 2, axis=0, weights=rows.weight))
            self._scale = np.where(spread > 10 * np.finfo(float).eps * np.abs(self._mean), spread, 1.0)

    def _tensor(self, table: Float) -> Tensor:
        return torch.from_numpy(((table - self._mean) / self._scale).astype(np.float32))

    def _batches(self, rows: Rows, batch_size: int | None, seed: int) -> TensorBatches:
        weight = None
        if rows.weight is not None:
            weight = torch.from_numpy((rows.weight / rows.weight.mean()).astype(np.float32))
        return TensorBatches(
            self._tensor(rows.x), torch.from_numpy(rows.y), weight, batch_size=batch_size, seed=seed
        )

    def _batch_size(self, n_train: int) -> int | None:
        if isinstance(self.batch_size, str):
            _checks.one_of("batch_size", self.batch_size, ("auto",))
            return None if n_train <= FULL_BATCH_UP_TO else 256
        return self.batch_size

    def _network(self, n_features: int, n_classes: int) -> nn.Module:
        if self.network is None:
            return models.mlp(n_features, n_classes, hidden=self.hidden)
        module = None if isinstance(self.network, nn.Module) else self.network(n_features, n_classes)
        if not isinstance(module, nn.Module):
            raise ConfigError(
                "network must be a function (n_features, n_classes) -> nn.Module, so that every fit starts anew; "
                f"got {self.network!r}."
            )
        return module

    def _logits(self, table: Float) -> Float:
        rows = self._tensor(table)
        with torch.no_grad():
            parts = [self.module_(part) for part in rows.split(PREDICT_ROWS)]
        return torch.cat(parts).double().numpy()


def _softmax(logits: Float) -> Float:
    probs: Float = softmax(logits, axis=1)
    return probs
