"""The leaves of small trees by masks of bits, all nodes at once instead of step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from selfcal._support.checks import Int
from selfcal.models.trees.leaves import fixed_point
from selfcal.models.trees.nodes import left_children, levels
from selfcal.models.trees.ranks import HIGHEST, Ranks, can_be_ranked
from selfcal.models.trees.steps import Splits

MAX_LEAVES = 31
"""Of a tree, so that its mask is a positive number of 32 bits."""
MAX_PADDING = 4
"""Masks are made for trees of equal size; a mean size below the largest one by this factor makes them wasteful."""
WORD = 8
"""Bits of a mask that are worked on together; tests of 8 bits are twice as fast as of 16."""
BLOCK_TREES, BLOCK_ROWS = 256, 256
"""Trees and rows that are worked on together: few calls, and arrays of one or two megabytes."""


class _Precision(NamedTuple):
    """A floating-point type, an integer type of its size, the bits after its exponent, and the exponent of one."""

    dtype: torch.dtype
    integer: torch.dtype
    mantissa: int
    bias: int


SINGLE = _Precision(torch.float32, torch.int32, 23, 127)
DOUBLE = _Precision(torch.float64, torch.int64, 52, 1023)


class Masks(nn.Module):
    """Adds up the scores of boosted trees that have few leaves, and few thresholds for each column.

    Each leaf of a tree has a bit. Of the two children of a node, the one with fewer leaves has the higher bits; if a
    row goes to the other child, these bits are crossed out. Whatever is crossed out below nodes that the row does not
    reach, the highest bit left is that of its leaf. So all nodes of all trees are tested independently of one
    another, many rows at a time, by a comparison of `Ranks`; nothing is looked up before the leaf is known.

    Args:
        is_leaf: Whether each node is a leaf, in the order of `selfcal.models.trees.nodes`.
        n_trees: Number of trees.
        splits: Of the inner nodes.
        value: The score of each leaf.
        n_outputs: Scores of a row; the trees are for each of them in turn.

    Example:
        Numbers above 0.5 reach the second leaf, and missing ones as well:

        >>> split = Splits(*map(np.array, ([0], [0.5], [True], [-1], np.zeros((0, 1), dtype=bool))))
        >>> nodes = np.array([False, True, True]), 1, split
        >>> masks = Masks(*nodes, value=np.array([-1.0, 2.0]), n_outputs=1)
        >>> masks(torch.tensor([[0.0], [1.0], [torch.nan]])).T
        tensor([[-1.,  2.,  2.]], dtype=torch.float64)

    Reference:
        Lucchese et al., QuickScorer: a Fast Algorithm to Rank Documents with Additive Ensembles of Regression Trees,
        SIGIR 2015, who cross out bits tree by tree in order of the thresholds.
    """

    source: Tensor
    threshold: Tensor
    crossed_out: Tensor
    every_leaf: Tensor
    first: Tensor
    value: Tensor

    def __init__(
        self,
        is_leaf: NDArray[np.bool_],
        n_trees: int,
        splits: Splits,
        *,
        value: NDArray[Any],
        n_outputs: int,
    ) -> None:
        super().__init__()
        tree, size, bit = _places(is_leaf, n_trees)
        left = left_children(is_leaf, n_trees)[~is_leaf]
        # the right child has the higher bits if it has fewer leaves; its test is true for rows that go to the left
        opposite = size[left] >= size[left + 1]
        child = left + opposite
        self.ranks = Ranks(splits, opposite)
        self.n_outputs = n_outputs
        n_leaves = size[:n_trees]
        width = int(n_leaves.max())
        self.n_words = -(-width // WORD)
        self.precision = SINGLE if WORD * self.n_words <= SINGLE.mantissa + 1 else DOUBLE
        mask = self._words(((1 << size[child]) - 1) << bit[child])
        node, word = np.nonzero(mask)
        slot = _count_before(tree[~is_leaf][node] * self.n_words + word)
        shape = int(slot.max()) + 1, n_trees, self.n_words
        place = slot, tree[~is_leaf][node], word
        values, self.scale = fixed_point(value, n_trees)
        table = np.zeros((n_trees, width), np.int64)
        table[tree[is_leaf], bit[is_leaf]] = values
        for name, array in {
            "source": _filled(shape, place, self.ranks.source[node].astype(np.int32), 0),
            "threshold": _filled(shape, place, self.ranks.threshold[node], HIGHEST)[..., None],
            "crossed_out": _filled(shape, place, mask[node, word], 0)[..., None],
            "every_leaf": self._words((1 << n_leaves) - 1)[..., None],
            "first": width * np.arange(n_trees)[:, None] - self.precision.bias,
            "value": table.ravel(),
        }.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)
        self.first = self.first.to(self.precision.integer)

    @staticmethod
    def suit(is_leaf: NDArray[np.bool_], n_trees: int, splits: Splits) -> bool:
        """Whether the trees are small enough, and alike in size."""
        _, size, _ = _places(is_leaf, n_trees)
        largest = size[:n_trees].max()
        return bool(
            1 < largest <= min(MAX_LEAVES, MAX_PADDING * size[:n_trees].mean()) and can_be_ranked(splits)
        )

    def forward(self, columns: Tensor) -> Tensor:
        """The sums (rows, outputs), in double precision."""
        ranks = self.ranks(columns)
        sums = torch.zeros(self.n_outputs, len(columns), dtype=torch.int64, device=columns.device)
        n_trees = max(1, BLOCK_TREES // self.n_outputs) * self.n_outputs
        for start in range(0, len(self.first), n_trees):
            block = slice(start, start + n_trees)
            # the exponent of a number is that of its highest bit
            masks = self._masks(ranks, block).view(self.precision.integer)
            leaf = masks.bitwise_right_shift_(self.precision.mantissa)
            values = self.value.index_select(0, leaf.add_(self.first[block]).flatten())
            sums += values.view(len(leaf) // self.n_outputs, *sums.shape).sum(dim=0)
        return sums.T.double() * self.scale

    def _masks(self, ranks: Tensor, block: slice) -> Tensor:
        """The bits that are not crossed out, as numbers: (trees, rows)."""
        source = self.source[:, block]
        tests = ranks.index_select(0, source.flatten()).view(*source.shape, ranks.shape[1])
        tests.gt_(self.threshold[:, block]).mul_(self.crossed_out[:, block])
        left_over = tests[0]
        for further in tests[1:]:
            left_over |= further
        left_over ^= self.every_leaf[block]
        masks = left_over[:, 0].to(self.precision.dtype)
        for word in range(1, self.n_words):
            masks.add_(left_over[:, word], alpha=1 << WORD * word)
        return masks

    def _words(self, mask: Int) -> NDArray[np.uint8]:
        """The parts of masks, from the lowest bits on."""
        return (mask[:, None] >> WORD * np.arange(self.n_words)).astype(np.uint8)


class _Places(NamedTuple):
    """For each node its tree, the number of leaves below it, and the lowest bit of these."""

    tree: Int
    size: Int
    bit: Int


def _places(is_leaf: NDArray[np.bool_], n_trees: int) -> _Places:
    """The places of nodes in masks.

    Example:
        A tree whose left child is a leaf, which gets the highest bit:

        >>> _places(np.array([False, True, False, True, True]), 1)
        _Places(tree=array([0, 0, 0, 0, 0]), size=array([3, 1, 2, 1, 1]), bit=array([0, 2, 0, 0, 1]))
    """
    left = left_children(is_leaf, n_trees)
    inner = [level.start + np.flatnonzero(~is_leaf[level]) for level in levels(is_leaf, n_trees)]
    tree, size, bit = np.arange(len(left)), np.ones(len(left), np.int64), np.zeros(len(left), np.int64)
    for nodes in reversed(inner):
        size[nodes] = size[left[nodes]] + size[left[nodes] + 1]
    for nodes in inner:
        first, second = left[nodes], left[nodes] + 1
        tree[first] = tree[second] = tree[nodes]
        bit[first] = bit[nodes] + np.where(size[first] < size[second], size[second], 0)
        bit[second] = bit[nodes] + np.where(size[first] < size[second], 0, size[first])
    return _Places(tree, size, bit)


def _count_before(group: Int) -> Int:
    """How many elements of the same group are before each.

    Example:
        >>> _count_before(np.array([2, 0, 2, 2, 0]))
        array([0, 0, 1, 2, 1])
    """
    order = np.argsort(group, kind="stable")
    count = np.bincount(group)
    before = np.empty(len(group), np.int64)
    before[order] = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    return before


def _filled(shape: tuple[int, ...], place: Any, values: NDArray[Any], rest: int) -> NDArray[Any]:
    """An array with these values at these places, and another one everywhere else."""
    array = np.full(shape, rest, values.dtype)
    array[place] = values
    return array
