"""The columns that trees split: encoded features turned back into numbers with missing values, and categories."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from selfcal.errors import ConfigError
from selfcal.tabular.features import FeatureGroups

MAX_LEVELS = 255
"""Levels of a category that scikit-learn's boosting accepts; larger one-hot blocks stay as they are."""


class TreeColumns:
    """Turns encoded features back into columns with missing values and categories.

    The columns are, in this order: the features in no group, as they are; the numbers that can be missing, NaN where
    their indicator is set; and the code of each category: its position in the one-hot block, NaN where no level is
    set. A level or an indicator is set if it is positive, so standardised features are understood as well. A block
    of more than `MAX_LEVELS` levels stays as it is.

    Args:
        n_features: Encoded features.
        groups: Those that belong together.

    Attributes:
        n_columns: Columns after turning back.
        n_levels: Levels of each category, which are the last columns.
        categorical: The positions of the categories among the columns.

    Example:
        >>> columns = TreeColumns(5, FeatureGroups(missing=[(0, 2)], categories=[(3, 5)]))
        >>> columns(torch.tensor([[1.0, 7.0, 0.0, 0.0, 1.0], [0.0, 8.0, 1.0, 0.0, 0.0]]))
        tensor([[7., 1., 1.],
                [8., nan, nan]])
        >>> columns.categorical
        [2]
    """

    def __init__(self, n_features: int, groups: FeatureGroups | None = None) -> None:
        self.n_features = n_features
        self.groups = FeatureGroups() if groups is None else groups
        if self.groups.n_features > n_features:
            raise ConfigError(
                f"The groups must be of the {n_features} features at hand; got some of the first "
                f"{self.groups.n_features}. Take the groups of the preprocessor that encoded them."
            )
        blocks = [(start, stop) for start, stop in self.groups.categories if stop - start <= MAX_LEVELS]
        in_blocks = [place for start, stop in blocks for place in range(start, stop)]
        numbers, indicators = zip(*self.groups.missing, strict=True) if self.groups.missing else ((), ())
        grouped = {*numbers, *indicators, *in_blocks}
        self.n_levels = [stop - start for start, stop in blocks]
        plain = [place for place in range(n_features) if place not in grouped]
        self.n_columns = len(plain) + len(numbers) + len(blocks)
        self.categorical = list(range(len(plain) + len(numbers), self.n_columns))
        self._places = plain, list(numbers), list(indicators), in_blocks
        # NumPy, since a module may be built on the meta device or traced
        ranks = [np.arange(1.0, size + 1) for size in self.n_levels]
        self._ranks = np.concatenate([*ranks, np.empty(0)])
        self._last = np.cumsum(self.n_levels, dtype=np.int64) - 1

    def __call__(self, x: Tensor) -> Tensor:
        """The columns of these rows, as float32."""
        plain, numbers, indicators, in_blocks = self._places
        if not (numbers or in_blocks):
            return x
        parts = [x[:, plain]]
        if numbers:
            parts.append(torch.where(x[:, indicators] > 0, torch.nan, x[:, numbers]))
        if in_blocks:
            # one level of a block is set at most: the sum over the block is its rank, counted from one
            ranks = ((x[:, in_blocks] > 0) * torch.from_numpy(self._ranks).to(x.device)).cumsum(dim=1)
            ends = ranks[:, torch.from_numpy(self._last).to(x.device)]
            codes = ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1])) - 1
            parts.append(torch.where(codes < 0, torch.nan, codes).to(x.dtype))
        return torch.cat(parts, dim=1)
