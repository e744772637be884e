"""The trees of several forests as those of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from selfcal.models.trees.nodes import in_order, left_children

Arrays = Mapping[str, NDArray[Any]]


def first_trees(forests: Sequence[Arrays], sizes: Sequence[int], n_trees: int) -> dict[str, NDArray[Any]]:
    """The nodes of the first trees of each forest, in the order of `selfcal.models.trees.nodes`.

    Args:
        forests: The arrays of each forest, named as in `Trees`; none of them splits categories.
        sizes: Number of trees of each.
        n_trees: Number of trees of each to take.

    Returns:
        The arrays of the nodes and leaves of a single forest.
    """
    is_leaf = _joined(forests, "is_leaf")
    offsets = np.cumsum([0, *(len(forest["is_leaf"]) for forest in forests[:-1])])
    left = np.concatenate(
        [
            np.where(forest["is_leaf"], -1, offset + left_children(forest["is_leaf"], size))
            for forest, size, offset in zip(forests, sizes, offsets, strict=True)
        ]
    )
    roots = (offsets[:, None] + np.arange(n_trees)).ravel()
    order = in_order(left, left + 1, roots)
    kept = is_leaf[order]
    splits, leaves = ((np.cumsum(these) - 1)[order[these[order]]] for these in (~is_leaf, is_leaf))
    # a value is a probability over the number of trees
    value = [forest["value"] * (size / len(roots)) for forest, size in zip(forests, sizes, strict=True)]
    starts = np.cumsum([0, *_joined(forests, "leaf_size")], dtype=np.int64)
    pairs = sparse.csr_array((np.concatenate(value), _joined(forests, "leaf_output"), starts))[leaves]
    of_splits = ("column", "threshold", "missing_right", "category")
    return {name: _joined(forests, name)[splits] for name in of_splits} | {
        "is_leaf": kept,
        "leaf_size": np.diff(pairs.indptr),
        "leaf_output": pairs.indices,
        "value": pairs.data,
    }


def _joined(forests: Sequence[Arrays], name: str) -> NDArray[Any]:
    return np.concatenate([forest[name] for forest in forests])
