"""The error of an autoencoder, which reconstructs well what is like its training rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.uncertainty._base import FeatureScore, in_blocks
from selfcal.uncertainty._rows import drawn, scaling

WIDTH = 32
"""Width of the hidden layers before and after the code."""

MIN_ROWS_TO_STOP = 50
"""With fewer training rows, none are held out to stop by."""


@dataclass(frozen=True)
class Layer:
    """The weights of a layer, row by row (one row for each input), and its biases."""

    weights: Float
    biases: Float

    def __call__(self, x: Float) -> Float:
        """The output of the layer, before any activation."""
        return x @ self.weights.reshape(-1, len(self.biases)) + self.biases


class Reconstruction(FeatureScore):
    """The mean squared error of an autoencoder, ``||x - g(f(x))||^2 / d``, in standardised columns.

    The autoencoder is a perceptron with a narrow layer, the code, that is trained to return its input.

    Args:
        code: Width of the code; by default half the number of columns, at least one.
        max_epochs: Passes over the training rows at most.
        max_rows: Maximum number of training rows, drawn as equally from each class as there are rows; None keeps all.
        random_state: Seeds the draw, the weights and the order of the rows.

    >>> rng = np.random.default_rng(0)
    >>> line = rng.normal(size=(500, 1)) * [1.0, 2.0]
    >>> score = Reconstruction(max_epochs=50).fit(line, line[:, 0] > 0)
    >>> near, far = score.score([[1.0, 2.0], [1.0, -2.0]])
    >>> bool(far > 10 * near)
    True

    Reference: Japkowicz, Myers, Gluck, A Novelty Detection Approach to Classification, IJCAI 1995.
    """

    mean_: Float
    scale_: Float
    layers_: tuple[Layer, ...]

    def __init__(
        self,
        code: int | None = None,
        max_epochs: int = 100,
        max_rows: int | None = 20_000,
        random_state: int = 0,
    ) -> None:
        self.code = code
        self.max_epochs = max_epochs
        self.max_rows = max_rows
        self.random_state = random_state

    def _check_settings(self) -> None:
        checks.positive_int("max_epochs", self.max_epochs)
        checks.positive_int("random_state", self.random_state, low=0)
        for name in ("code", "max_rows"):
            if getattr(self, name) is not None:
                checks.positive_int(name, getattr(self, name))

    def _learn(self, x: Float, codes: Int) -> None:
        self.mean_, self.scale_ = scaling(x)
        rows = (x[drawn(codes, self.max_rows, self.random_state)] - self.mean_) / self.scale_
        width = max(1, x.shape[1] // 2) if self.code is None else self.code
        network = MLPRegressor(
            hidden_layer_sizes=(WIDTH, width, WIDTH),
            activation="tanh",
            learning_rate_init=0.005,
            max_iter=self.max_epochs,
            early_stopping=len(rows) >= MIN_ROWS_TO_STOP,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is a setting
            network.fit(rows, rows if rows.shape[1] > 1 else rows[:, 0])
        self.layers_ = tuple(
            Layer(np.asarray(weights, dtype=np.float64).ravel(), np.asarray(biases, dtype=np.float64))
            for weights, biases in zip(network.coefs_, network.intercepts_, strict=True)
        )

    def _doubts(self, x: Float, predicted: ArrayLike | None) -> Float:
        return in_blocks(self._doubt, x)

    def _doubt(self, x: Float) -> Float:
        rows = (x - self.mean_) / self.scale_
        *hidden, last = self.layers_
        output = rows
        for layer in hidden:
            output = np.tanh(layer(output))
        error: Float = ((last(output) - rows) ** 2).mean(axis=1)
        return error
