"""Base class of the generated data sets: any number of rows, and the true posterior of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal._support.checks import Float, Int, positive_int, such
from selfcal.errors import DataError

CHUNK_ROWS = 1024
"""Rows processed at a time: a few megabytes of quadrature nodes, whatever the size of the table."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""The smallest posterior probability, so that its logarithm is finite."""


@dataclass(frozen=True)
class Feature:
    """One column of a table: its name, and the values that can occur in it."""

    name: str
    low: float = -np.inf
    high: float = np.inf
    whole: bool = False

    def impossible(self, column: Float) -> NDArray[np.bool_]:
        """Mark the values that cannot occur; NaN and infinity never can."""
        wrong = ~(np.isfinite(column) & (column >= self.low) & (column <= self.high))
        return wrong | (column != np.floor(column)) if self.whole else wrong

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "finite"
        return kind if np.isinf(self.low) else f"{kind} within [{self.low:g}, {self.high:g}]"


class GenerativeDataset(ABC):
    """A classification problem that can be sampled at any size and whose posterior is known.

    The label of a row follows its posterior,

        y | x ~ Categorical(P(y=0 | x), ..., P(y=C-1 | x)),

    so the posterior itself has no calibration error, and what a metric reports for it is sampling noise.
    A subclass is a frozen dataclass that implements the sampling of rows and their posterior; the
    checks, the seeding and the bounded memory are here.
    """

    n_classes: ClassVar[int]
    features: ClassVar[tuple[Feature, ...]]

    @property
    @abstractmethod
    def name(self) -> str:
        """A short name for tables and file names; equal settings have equal names."""

    @property
    @final
    def n_features(self) -> int:
        """The number of columns of `X`."""
        return len(self.features)

    @final
    def sample(self, n: int, seed: int) -> tuple[Float, Int]:
        """Draw `n` independent rows with their labels.

        The same `n` and `seed` give the same table; tables that must be independent need different seeds.

        Args:
            n: Number of rows.
            seed: Seed of the random generator.

        Returns:
            `X` of shape (n, n_features) and the label codes `y` of shape (n,).
        """
        rng = np.random.default_rng(positive_int("seed", seed, low=0))
        return self._draw(positive_int("n", n), rng)

    @final
    def posterior(self, X: ArrayLike) -> Float:
        """Return the true class probabilities of every row.

        Args:
            X: rows of the table, shape (n, n_features).

        Returns:
            Probabilities of shape (n, n_classes); positive, and one in sum over each row.
        """
        table = self._checked(X)
        out = np.empty((len(table), self.n_classes))
        for start in range(0, len(table), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            out[rows] = self._posterior(table[rows])
        return np.maximum(out, SMALLEST, out=out)

    @abstractmethod
    def _draw(self, n: int, rng: np.random.Generator) -> tuple[Float, Int]:
        """Draw `n` rows and labels with `rng` alone."""

    @abstractmethod
    def _posterior(self, X: Float) -> Float:
        """Return the posterior of validated rows."""

    @final
    def _checked(self, X: ArrayLike) -> Float:
        columns = ", ".join(feature.name for feature in self.features)
        try:
            table = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X must be a table of numbers with the columns {columns}; {error}.") from error
        if table.ndim != 2 or table.shape[1] != self.n_features:
            raise DataError(
                f"X must have shape (rows, {self.n_features}) with the columns {columns}; "
                f"got shape {table.shape}. For a single row pass X[None, :]."
            )
        for feature, column in zip(self.features, table.T, strict=True):
            wrong = feature.impossible(column)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise DataError(
                    f"{feature.name} must be {feature}; row {row} is {column[row]:g} "
                    f"({such(int(wrong.sum()), 'row')}). Pass features as sampled, not standardised."
                )
        return table
