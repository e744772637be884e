"""From the leaves that a row reaches to the scores of its classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from selfcal.errors import ModelFormatError


class Scores(nn.Module):
    """Adds up the leaves of boosting, which have one score each; the trees are for each output in turn.

    Args:
        value: The score of each leaf.
        n_trees: Number of trees.
        n_outputs: Scores of a row.

    Example:
        Four trees for two outputs:

        >>> scores = Scores(np.array([0.0, 1.0, 0.5]), n_trees=4, n_outputs=2)
        >>> scores(torch.tensor([[0], [1], [2], [2]]))
        tensor([[0.5000, 1.5000]], dtype=torch.float64)
    """

    value: Tensor
    width = 1
    """Numbers of a leaf, at most."""

    def __init__(self, value: NDArray[Any], n_trees: int, n_outputs: int) -> None:
        super().__init__()
        self.n_outputs = n_outputs
        values, self.scale = fixed_point(value, n_trees)
        self.register_buffer("value", torch.from_numpy(values), persistent=False)

    def forward(self, leaf: Tensor) -> Tensor:
        """The sums (rows, outputs), in double precision, for the leaf of each tree and row (trees, rows)."""
        n_trees, n_rows = leaf.shape
        values = self.value.index_select(0, leaf.flatten())
        sums = values.view(n_trees // self.n_outputs, self.n_outputs, n_rows).sum(dim=0)
        return sums.T.double() * self.scale


def fixed_point(value: NDArray[Any], n_trees: int) -> tuple[NDArray[np.int64], float]:
    """Scores as integers and their unit, so that a sum over trees is exact and does not depend on its order.

    Args:
        value: The scores.
        n_trees: Number of scores that are added up at most.

    Raises:
        ModelFormatError: Not all scores are finite.

    Example:
        >>> integers, unit = fixed_point(np.array([0.1, -0.25]), n_trees=500)
        >>> unit == 2.0**-55, np.abs(integers * unit - [0.1, -0.25]).max() < unit
        (True, np.True_)
    """
    if not np.isfinite(value).all():
        raise ModelFormatError("Leaves must have finite scores; these do not.")
    _, exponent = np.frexp(n_trees * np.abs(value, dtype=np.float64).max())
    integers = np.rint(np.ldexp(value.astype(np.float64), 62 - exponent))
    return integers.astype(np.int64), 2.0 ** float(exponent - 62)


class Probabilities(nn.Module):
    """Adds up the leaves of a forest, which have probabilities of few of many classes.

    Those that are zero are left out: a leaf has as many pairs of an output and a value as there were classes among
    its rows in training. In a tree that was grown to the end, that is one.

    Args:
        size: The number of pairs of each leaf.
        output: The output of each pair, leaf after leaf.
        value: The probability of each pair.
        n_outputs: Scores of a row.

    Raises:
        ModelFormatError: These are no such pairs, as in a damaged file.

    Example:
        Two trees; the second leaf has two classes:

        >>> pairs = (np.array([1, 2]), np.array([2, 0, 1]), np.array([0.5, 0.25, 0.25], dtype=np.float32))
        >>> probabilities = Probabilities(*pairs, n_outputs=3)
        >>> probabilities(torch.tensor([[0, 1], [0, 0]]))
        tensor([[0.0000, 0.0000, 1.0000],
                [0.2500, 0.2500, 0.5000]], dtype=torch.float64)
    """

    size: Tensor
    start: Tensor
    output: Tensor
    value: Tensor

    def __init__(self, size: NDArray[Any], output: NDArray[Any], value: NDArray[Any], n_outputs: int) -> None:
        super().__init__()
        if (
            ((size < 1) | (size > n_outputs)).any()
            or size.sum(dtype=np.int64) != len(value)
            or ((output < 0) | (output >= n_outputs)).any()
        ):
            raise ModelFormatError(
                f"Leaves must have probabilities of 1 to {n_outputs} classes; these do not."
            )
        self.n_outputs = n_outputs
        self.width = int(size.max())
        start = np.cumsum(size, dtype=np.int64) - size
        for name, array in {"size": size, "start": start, "output": output, "value": value}.items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def forward(self, leaf: Tensor) -> Tensor:
        """The sums (rows, outputs), in double precision, for the leaf of each tree and row (trees, rows)."""
        if torch.compiler.is_compiling():
            return self._traced(leaf)
        n_trees, n_rows = leaf.shape
        leaf, row = leaf.flatten(), torch.arange(n_rows, device=leaf.device).repeat(n_trees)
        pair = leaf
        if self.width > 1:
            size = self.size.index_select(0, leaf).long()
            # the pairs of all leaves one after the other: the first of a leaf, and how far a pair is from it
            first = self.start.index_select(0, leaf) - size.cumsum(dim=0) + size
            pair, row = first.repeat_interleave(size), row.repeat_interleave(size)
            pair += torch.arange(len(pair), device=leaf.device)
        place = row * self.n_outputs + self.output.index_select(0, pair)
        sums = torch.zeros(n_rows * self.n_outputs, dtype=torch.float64, device=leaf.device)
        sums.index_add_(0, place, self.value.index_select(0, pair).double())
        return sums.view(n_rows, self.n_outputs)

    def _traced(self, leaf: Tensor) -> Tensor:
        """The same with as many pairs for each leaf, for a trace."""
        leaf = leaf.T[:, :, None].long()
        further = torch.arange(self.width, device=leaf.device)
        exists = further < self.size.take(leaf)
        pair = torch.where(exists, self.start.take(leaf) + further, 0)
        values = torch.where(exists, self.value.take(pair), 0).double().flatten(1)
        sums = torch.zeros(leaf.shape[0], self.n_outputs, dtype=torch.float64, device=leaf.device)
        return sums.scatter_add(1, self.output.take(pair).long().flatten(1), values)
