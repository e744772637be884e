"""Columns as small integers: the rank of a number among the thresholds that it is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from selfcal.models.trees.steps import Splits

HIGHEST = 255
"""The rank of a missing value that goes to the right; one more than the highest threshold has."""


class Ranks(nn.Module):
    """Turns columns into ranks of 8 bits, so that comparing them gives the same as comparing the numbers.

    The rank of a number is the number of thresholds of its column that are smaller. It is above the i-th threshold,
    counted from 0 in order of size, if its rank is above i. There are four ranks of every column: missing values have
    the lowest or the highest rank, and either is also subtracted from `HIGHEST`, where a comparison is true if the
    number is not above the threshold. Each set of levels that a split sends to the right has ranks as well, 0 and 1.

    Args:
        splits: Of all inner nodes.
        opposite: For each split, whether it is to be true for rows that go to the left, instead of the right.

    Attributes:
        source: For each split, the number of its ranks among those that `forward` returns.
        threshold: For each split, the rank that a row must exceed.

    Example:
        >>> split = Splits(*map(np.array, ([0, 0], [0.5, 2], [False, True], [-1, -1], np.zeros((0, 1), dtype=bool))))
        >>> ranks = Ranks(split, opposite=np.array([False, True]))
        >>> ranks(torch.tensor([[0.0], [1.0], [3.0], [torch.nan]]))[ranks.source]
        tensor([[  0,   1,   2,   0],
                [255, 254, 253,   0]], dtype=torch.uint8)
        >>> ranks.threshold
        array([  0, 253], dtype=uint8)
    """

    used: Tensor
    tree: Tensor

    def __init__(self, splits: Splits, opposite: NDArray[np.bool_]) -> None:
        super().__init__()
        of_number = splits.category < 0
        used = np.unique(splits.column[of_number])
        kind = len(used) * (splits.missing_right + 2 * opposite)
        thresholds, rank = [], np.zeros(len(kind), np.int64)
        self.source = np.zeros(len(kind), np.int64)
        for place, column in enumerate(used):
            nodes = np.flatnonzero(of_number & (splits.column == column))
            different, rank[nodes] = np.unique(splits.threshold[nodes], return_inverse=True)
            self.source[nodes] = place + kind[nodes]
            thresholds.append(different)
        self.threshold = np.where(of_number & opposite, HIGHEST - 1 - rank, rank).astype(np.uint8)
        self.depth = max(map(len, thresholds), default=0).bit_length()
        self._derive("used", used.astype(np.int64))
        self._derive("tree", _search_trees(thresholds, self.depth))
        self._add_categories(splits, opposite, start=4 * len(used))

    def _derive(self, name: str, array: NDArray[Any]) -> None:
        """Keep an array with the module, but out of its `state_dict`."""
        self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def _add_categories(self, splits: Splits, opposite: NDArray[np.bool_], start: int) -> None:
        """Add one kind of ranks, from that number on, for each set of levels."""
        self.n_levels = splits.level_right.shape[1] - 1
        self.categories = np.unique(splits.column[splits.category >= 0]).tolist()
        for column in self.categories:
            of_column = np.flatnonzero((splits.category >= 0) & (splits.column == column))
            true = splits.level_right[splits.category[of_column]] ^ opposite[of_column, None]
            sets, place = np.unique(true, axis=0, return_inverse=True)
            self.source[of_column] = start + place.ravel()
            self._derive(f"true_{column}", np.ascontiguousarray(sets.T, dtype=np.uint8))
            start += len(sets)

    def forward(self, columns: Tensor) -> Tensor:
        """All ranks of these rows: (ranks, rows)."""
        x = columns.detach().T.index_select(0, self.used)
        # the root of a search tree is node 1, and the children of node i are nodes 2 i and 2 i + 1
        node = torch.ones_like(x)
        for _ in range(self.depth):
            threshold = self.tree.gather(1, node.long())
            node = torch.gt(x, threshold, out=threshold).add_(node, alpha=2)
        rank = (node - (1 << self.depth)).to(torch.uint8)
        both = torch.cat([rank, rank.masked_fill(x.isnan(), HIGHEST)])
        ranks = [both, HIGHEST - both]
        for column in self.categories:
            level = columns[:, column].nan_to_num(self.n_levels).clamp(0, self.n_levels).int()
            ranks.append(self.get_buffer(f"true_{column}").index_select(0, level).T)
        return torch.cat(ranks)


def can_be_ranked(splits: Splits) -> bool:
    """Whether no column has more different thresholds than there are ranks."""
    of_number = splits.category < 0
    pairs = np.unique(np.column_stack([splits.column, splits.threshold])[of_number], axis=0)
    return bool((np.unique(pairs[:, 0], return_counts=True)[1] <= HIGHEST).all())


def _search_trees(sorted_thresholds: list[NDArray[np.float32]], depth: int) -> NDArray[np.float32]:
    """Each list as a complete binary search tree, level after level from place 1 on.

    Example:
        >>> _search_trees([np.array([1, 2, 3], dtype=np.float32), np.array([5], dtype=np.float32)], depth=2)
        array([[inf,  2.,  1.,  3.],
               [inf, inf,  5., inf]], dtype=float32)
    """
    in_order = np.full((len(sorted_thresholds), 1 << depth), np.inf, np.float32)
    for row, thresholds in zip(in_order, sorted_thresholds, strict=True):
        row[: len(thresholds)] = thresholds
    levels = [in_order[:, (1 << level) - 1 :: 2 << level] for level in reversed(range(depth))]
    return np.concatenate([in_order[:, -1:], *levels], axis=1)
