"""The nodes of several decision trees in an order that makes pointers between them unnecessary.

All roots come first, then the second level of all trees, and so on; children are in the order of their parents. So
the left child of the i-th inner node, counted from 0, is node ``n_trees + 2 i``, and the right child is the next one.
Trees of any shape can be written like this by which nodes are leaves, and nothing that can be written has a cycle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Int
from selfcal.errors import ModelFormatError

MAX_DEPTH = 512
"""Steps from a root to a leaf; a prediction takes time in proportion to them."""
MAX_NODES = (1 << 31) - 1


def in_order(left: Int, right: Int, roots: Int) -> Int:
    """The order of this module, for nodes with pointers to their children; a leaf has -1.

    Example:
        >>> in_order(np.array([1, -1, -1, 4, -1, -1]), np.array([2, -1, -1, 5, -1, -1]), np.array([0, 3]))
        array([0, 3, 1, 2, 4, 5])
    """
    levels = [roots]
    while len(levels[-1]):
        parents = levels[-1][left[levels[-1]] >= 0]
        levels.append(np.column_stack([left[parents], right[parents]]).ravel())
    return np.concatenate(levels)


def levels(is_leaf: NDArray[np.bool_], n_trees: int) -> list[slice]:
    """The places of the nodes of each level.

    Raises:
        ModelFormatError: The nodes do not form so many trees, or these are too deep.

    Example:
        A tree with three leaves, and one that is a leaf only:

        >>> levels(np.array([False, True, True, False, True, True]), 2)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    found, start, stop = [], 0, n_trees
    while start < stop <= len(is_leaf):
        found.append(slice(start, stop))
        start, stop = stop, stop + 2 * int((~is_leaf[start:stop]).sum())
    if stop != len(is_leaf) or stop > MAX_NODES or not found:
        raise ModelFormatError(f"The {len(is_leaf)} nodes must form {n_trees} trees; they do not.")
    if len(found) > MAX_DEPTH + 1:
        raise ModelFormatError(
            f"Trees must have a depth of at most {MAX_DEPTH}; got {len(found) - 1}. Fit them with a max_depth."
        )
    return found


def left_children(is_leaf: NDArray[np.bool_], n_trees: int) -> NDArray[np.int32]:
    """The left child of each node, for a leaf the leaf itself.

    Example:
        >>> left_children(np.array([False, True, True, False, True, True]), 2)
        array([2, 1, 2, 4, 4, 5], dtype=int32)
    """
    left = np.arange(len(is_leaf), dtype=np.int32)
    left[~is_leaf] = n_trees + 2 * np.arange((len(is_leaf) - n_trees) // 2)
    return left
