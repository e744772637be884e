"""Standardisation of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from selfcal._support.checks import Float, such
from selfcal.errors import DataError
from selfcal.estimators.inputs import cell

MAX_SCALED = 1e18
"""The largest scaled value; beyond it, single precision could overflow inside the network."""


@dataclass(frozen=True)
class Scaling:
    """The mean that is subtracted from each column, and the scale it is divided by.

    Example:
        >>> Scaling.of(np.array([[1.0, 7.0], [3.0, 7.0]]))
        Scaling(mean=array([2., 7.]), scale=array([1., 1.]))
    """

    mean: Float
    scale: Float

    @classmethod
    def of(cls, table: Float, weight: Float | None = None, *, columns: int | None = None) -> Self:
        """By the mean and the standard deviation; a column that is constant is centred only.

        Args:
            table: One row per sample.
            weight: The weight of each row.
            columns: Only so many columns, the first, are scaled; by default all.
        """
        if columns is not None:
            rest = table.shape[1] - columns
            first = cls.of(table[:, :columns], weight)
            return cls(np.append(first.mean, np.zeros(rest)), np.append(first.scale, np.ones(rest)))
        size = np.abs(table).max(axis=0)
        size[size == 0] = 1.0
        relative = table / size  # the squares of very large or very small numbers are out of range
        mean = np.average(relative, axis=0, weights=weight)
        spread = np.sqrt(np.average((relative - mean) ** 2, axis=0, weights=weight))
        varies = spread > 10 * np.finfo(float).eps * np.abs(mean)
        return cls(mean * size, np.where(varies, spread * size, 1.0))

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """Leave everything as it is."""
        return cls(np.zeros(n_columns), np.ones(n_columns))

    def scaled(self, table: Float) -> Float:
        """The scaled table; of very large numbers, infinity."""
        with np.errstate(over="ignore"):
            return (table - self.mean) / self.scale

    def tensor(self, table: Float, estimator: BaseEstimator, *, limit: str, name: str = "X") -> Tensor:
        """The scaled table in single precision.

        Args:
            table: One row per sample.
            estimator: The estimator, for the names of the columns.
            limit: The allowed range of a cell, for the error message.
            name: The name of the table in errors.
        """
        scaled = self.scaled(table)
        far = np.abs(scaled) > MAX_SCALED
        if far.any():
            row, column = np.argwhere(far)[0]
            raise DataError(
                f"{name} must lie {limit}; {cell(estimator, row, column)} is {table[row, column]:g} "
                f"({such(int(far.sum()), 'cell')}). Clip or drop them."
            )
        return torch.from_numpy(scaled.astype(np.float32))
