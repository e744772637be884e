"""The way of a row from the root of each tree to a leaf."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from selfcal.errors import ModelFormatError
from selfcal.models.trees.columns import TreeColumns
from selfcal.models.trees.nodes import left_children, levels

STEPS_TOGETHER = 8
"""Steps before the rows that have reached a leaf are left out; to find the others takes about as long as a step."""


class Splits(NamedTuple):
    """The splits of all inner nodes, as arrays.

    Attributes:
        column: The column that each of them splits.
        threshold: Larger numbers go to the right; unused by splits of categories.
        missing_right: Whether missing values go to the right; unused by splits of categories.
        category: The row of `level_right` for a split of a category, -1 for others.
        level_right: Whether each level, and at the end a missing value, goes to the right: (splits, levels + 1).
    """

    column: NDArray[Any]
    threshold: NDArray[Any]
    missing_right: NDArray[Any]
    category: NDArray[Any]
    level_right: NDArray[Any]

    def check(self, columns: TreeColumns) -> None:
        """Raise an error if these are no splits of these columns, as in a damaged file."""
        n, categories = columns.n_columns, self.column[self.category >= 0]
        if (
            ((self.column < 0) | (self.column >= n)).any()
            or ((self.category < -1) | (self.category >= len(self.level_right))).any()
            or not np.isin(categories, columns.categorical).all()
            or not np.isfinite(self.threshold).all()
        ):
            raise ModelFormatError(f"Trees must split the {n} columns at finite thresholds; these do not.")


class Steps(nn.Module):
    """Goes from the roots of all trees to their leaves, one step in all of them at a time.

    Args:
        is_leaf: Whether each node is a leaf, in the order of `selfcal.models.trees.nodes`.
        n_trees: Number of trees.
        splits: Of the inner nodes.
        columns: The columns of a row.

    Raises:
        ModelFormatError: The nodes or splits are invalid.

    Example:
        Numbers above 0.5 reach the second leaf, and missing ones as well:

        >>> split = Splits(*map(np.array, ([0], [0.5], [True], [-1], np.zeros((0, 1), dtype=bool))))
        >>> steps = Steps(np.array([False, True, True]), 1, split, TreeColumns(1))
        >>> steps(torch.tensor([[0.0], [1.0], [torch.nan]]))
        tensor([[0, 1, 1]], dtype=torch.int32)
    """

    left: Tensor
    number: Tensor
    threshold: Tensor
    threshold_key: Tensor
    leaf: Tensor

    def __init__(
        self, is_leaf: NDArray[np.bool_], n_trees: int, splits: Splits, columns: TreeColumns
    ) -> None:
        super().__init__()
        splits.check(columns)
        self.depth = len(levels(is_leaf, n_trees)) - 1
        left = left_children(is_leaf, n_trees)
        self.n_trees = n_trees
        of_category, n = splits.category >= 0, columns.n_columns
        split_column = np.zeros(len(splits.level_right), np.int64)
        split_column[splits.category[of_category]] = splits.column[of_category]
        by_column = np.argsort(split_column, kind="stable")
        # no number is above infinity: a leaf is its own left child, and further steps stay there
        number, threshold = np.zeros_like(left), np.full(len(left), np.inf, np.float32)
        number[~is_leaf] = splits.column + n * splits.missing_right
        number[np.flatnonzero(~is_leaf)[of_category]] = (
            2 * n + np.argsort(by_column)[splits.category[of_category]]
        )
        threshold[~is_leaf] = np.where(of_category, 0.5, splits.threshold)
        self._derive("left", left)
        self._derive("number", number)
        self._derive("threshold", threshold)
        self._derive("threshold_key", _keys(torch.from_numpy(threshold)).numpy())
        self._derive("leaf", np.cumsum(is_leaf, dtype=np.int32) - 1)
        self.n_levels = splits.level_right.shape[1] - 1
        self.categories = np.unique(split_column).tolist()
        for column in self.categories:
            right = splits.level_right[split_column == column].T
            self._derive(f"right_{column}", np.ascontiguousarray(right, dtype=np.float32))

    def _derive(self, name: str, array: NDArray[Any]) -> None:
        """Keep an array with the module, but out of its `state_dict`."""
        self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def forward(self, columns: Tensor) -> Tensor:
        """The leaf that each row reaches in each tree: (trees, rows)."""
        numbers = self._numbers(columns)
        if torch.compiler.is_compiling():
            return self._traced(numbers)
        # flat arrays and 32-bit indices, since index_select is then several times faster than other ways of indexing
        n_rows, width = numbers.shape
        keys = _keys(numbers).flatten()
        roots = torch.arange(self.n_trees, dtype=torch.int32, device=columns.device)
        starts = torch.arange(0, n_rows * width, width, dtype=torch.int32, device=columns.device)
        nodes = self._after(self.depth, roots.repeat_interleave(n_rows), keys, starts.repeat(self.n_trees))
        return self.leaf.index_select(0, nodes).view(self.n_trees, n_rows)

    def _after(self, n_steps: int, node: Tensor, keys: Tensor, start: Tensor) -> Tensor:
        """The nodes after so many steps, where `start` is the place of the first key of the row."""
        for _ in range(min(n_steps, STEPS_TOGETHER)):
            right = keys.index_select(0, self.number.index_select(0, node).add_(start))
            right.gt_(self.threshold_key.index_select(0, node))
            node = self.left.index_select(0, node).add_(right)
        if n_steps > STEPS_TOGETHER:
            inner = (self.left.index_select(0, node) != node).nonzero().view(-1)
            further = node.index_select(0, inner), keys, start.index_select(0, inner)
            node.index_copy_(0, inner, self._after(n_steps - STEPS_TOGETHER, *further))
        return node

    def _traced(self, numbers: Tensor) -> Tensor:
        """The same in operations that do not depend on the numbers, for a trace."""
        node = torch.arange(self.n_trees, device=numbers.device).expand(numbers.shape[0], self.n_trees)
        for _ in range(self.depth):
            right = numbers.gather(1, self.number.take(node).long()) > self.threshold.take(node)
            node = self.left.take(node).long() + right
        return self.leaf.take(node).T

    def _numbers(self, columns: Tensor) -> Tensor:
        """The numbers that are compared with thresholds, so that steps need not know what is missing or a category.

        They are the columns with missing values below all others, then above all others, then for each split of a
        category 1 if the level goes to the right.
        """
        missing = columns.isnan()
        numbers = [columns.masked_fill(missing, value) for value in (-torch.inf, torch.inf)]
        for column in self.categories:
            level = columns[:, column].nan_to_num(self.n_levels).clamp(0, self.n_levels).int()
            numbers.append(self.get_buffer(f"right_{column}").index_select(0, level))
        return torch.cat(numbers, dim=1)


def _keys(numbers: Tensor) -> Tensor:
    """Integers in the same order as these numbers of single precision; steps that have one type only are faster.

    Example:
        >>> _keys(torch.tensor([-torch.inf, -1.0, -0.0, 0.0, 1e-45, torch.inf])).diff() > 0
        tensor([ True,  True, False,  True,  True])
    """
    bits = (numbers + 0.0).view(torch.int32)  # which makes -0.0 equal to 0.0
    return bits ^ (bits >> 31 & 0x7FFFFFFF)
