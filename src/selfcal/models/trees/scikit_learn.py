"""Fitted trees of scikit-learn as plain arrays; all that is private there is read here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from selfcal.errors import ConfigError
from selfcal.models.trees.columns import TreeColumns
from selfcal.models.trees.nodes import in_order

Array = NDArray[Any]


class Fitted(NamedTuple):
    """A fitted ensemble of trees, with nodes in the order of `selfcal.models.trees.nodes`.

    Attributes:
        n_trees: Number of trees.
        is_leaf: Whether each node is a leaf.
        column: The column that each inner node splits.
        threshold: Of inner nodes; larger numbers go to the right.
        missing_right: Whether an inner node sends missing values to the right.
        category: Of inner nodes the row of `level_right`, -1 for those that split by a threshold.
        level_right: Whether each level, and at the end a missing value, goes to the right: (splits, levels + 1).
        leaf_size: Classes of each leaf of a forest whose probability is not zero; None for boosting.
        leaf_output: The places of these classes among all, leaf after leaf; None for boosting.
        value: The score of each leaf of boosting; the probabilities of these classes, over the number of trees.
        baseline: The scores before the first tree; None for a forest.
        classes: The labels, as the trees have them.
    """

    n_trees: int
    is_leaf: Array
    column: Array
    threshold: Array
    missing_right: Array
    category: Array
    level_right: Array
    leaf_size: Array | None
    leaf_output: Array | None
    value: Array
    baseline: Array | None
    classes: Array


def read(model: Any, columns: TreeColumns, iterations: int | None = None) -> Fitted:
    """The trees of a fitted `HistGradientBoostingClassifier`, `RandomForestClassifier` or `ExtraTreesClassifier`.

    Args:
        model: The fitted classifier.
        columns: The columns that it was fitted on.
        iterations: Number of iterations of boosting to read, from the first one on; by default all.
    """
    boosting = hasattr(model, "_predictors")
    if not boosting and not (hasattr(model, "estimators_") and hasattr(model, "classes_")):
        raise ConfigError(
            "model must be a fitted HistGradientBoostingClassifier, ExtraTreesClassifier or RandomForestClassifier; "
            f"got {model!r}."
        )
    if model.n_features_in_ != columns.n_columns:
        raise ConfigError(
            f"model must be fitted on the {columns.n_columns} columns that TreeColumns makes; it was fitted on "
            f"{model.n_features_in_}. Fit it on columns(x)."
        )
    n_levels = max(columns.n_levels, default=0)
    if not boosting:
        return _forest(model, n_levels)
    if model.is_categorical_ is not None and not {*np.flatnonzero(model.is_categorical_)} <= {
        *columns.categorical
    }:
        raise ConfigError(
            f"categorical_features of the model must be among {columns.categorical}, the categories of TreeColumns; "
            f"got {np.flatnonzero(model.is_categorical_).tolist()}."
        )
    return _boosting(model, n_levels, iterations)


def _boosting(model: Any, n_levels: int, iterations: int | None) -> Fitted:
    predictors = [predictor for iteration in model._predictors[:iterations] for predictor in iteration]
    trees = [predictor.nodes for predictor in predictors]
    nodes, offsets = np.concatenate(trees), _offsets(trees)
    offset = np.repeat(offsets, [len(tree) for tree in trees])
    leaf = nodes["is_leaf"].astype(bool)
    left, right = (np.where(leaf, -1, nodes[side].astype(np.int64) + offset) for side in ("left", "right"))
    order = in_order(left, right, offsets)
    inner = order[~leaf[order]]
    columns, codes = _categories(model)
    level_right: list[Array] = []
    category = np.full(len(inner), -1)
    for place in np.flatnonzero(nodes["is_categorical"][inner]):
        node = nodes[inner[place]]
        tree = predictors[np.searchsorted(offsets, inner[place], side="right") - 1]
        category[place] = len(level_right)
        level_right.append(_level_right(node, tree, codes[columns[node["feature_idx"]]], n_levels))
    return Fitted(
        n_trees=len(trees),
        is_leaf=leaf[order],
        column=columns[nodes["feature_idx"][inner]],
        threshold=nodes["num_threshold"][inner],
        missing_right=~nodes["missing_go_to_left"][inner].astype(bool),
        category=category,
        level_right=np.array(level_right, dtype=bool).reshape(-1, n_levels + 1),
        leaf_size=None,
        leaf_output=None,
        value=nodes["value"][order[leaf[order]]],
        baseline=np.ravel(model._baseline_prediction),
        classes=model.classes_,
    )


def _categories(model: Any) -> tuple[Array, dict[int, Array]]:
    """The column of the table for each column of the trees, and the values of each category by their codes.

    Boosting puts categories before numbers, and codes the values that occurred in training by their rank.
    """
    if model.is_categorical_ is None:
        return np.arange(model.n_features_in_), {}
    categorical = np.flatnonzero(model.is_categorical_)
    numbers = np.flatnonzero(~model.is_categorical_)
    encoder = model._preprocessor.named_transformers_["encoder"]
    known = [values[~np.isnan(values)] for values in map(np.asarray, encoder.categories_)]
    return np.concatenate([categorical, numbers]), dict(zip(categorical.tolist(), known, strict=True))


def _level_right(node: Any, tree: Any, known: Array, n_levels: int) -> Array:
    """Whether each level goes to the right; one that did not occur in training goes with the missing values."""
    right = np.full(n_levels + 1, not node["missing_go_to_left"])
    codes = np.arange(len(known))
    words = tree.raw_left_cat_bitsets[node["bitset_idx"]]
    right[known.astype(np.int64)] = (words[codes // 32] >> (codes % 32).astype(np.uint32)) & 1 == 0
    return right


def _forest(model: Any, n_levels: int) -> Fitted:
    trees = [tree.tree_ for tree in model.estimators_]
    offsets = _offsets([tree.feature for tree in trees])
    together = {
        name: np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("children_left", "children_right", "feature", "threshold", "missing_go_to_left")
    }
    offset = np.repeat(offsets, [tree.node_count for tree in trees])
    leaf = together["children_left"] < 0
    left, right = (np.where(leaf, -1, together[f"children_{side}"] + offset) for side in ("left", "right"))
    order = in_order(left, right, offsets)
    inner = order[~leaf[order]]
    # one tree at a time: with many classes, the probabilities of all nodes are far more than anything else
    values = sparse.vstack(
        [sparse.csr_array(_probabilities(tree) / len(trees)) for tree in trees], format="csr"
    )
    values = values[(np.cumsum(leaf) - 1)[order[leaf[order]]]]
    return Fitted(
        n_trees=len(trees),
        is_leaf=leaf[order],
        column=together["feature"][inner],
        threshold=together["threshold"][inner],
        missing_right=~together["missing_go_to_left"][inner].astype(bool),
        category=np.full(len(inner), -1),
        level_right=np.empty((0, n_levels + 1), dtype=bool),
        leaf_size=np.diff(values.indptr),
        leaf_output=values.indices,
        value=values.data,
        baseline=None,
        classes=model.classes_,
    )


def _probabilities(tree: Any) -> Array:
    """Of each class, in each leaf of a tree."""
    counts = tree.value[tree.children_left < 0, 0]
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _offsets(trees: list[Any]) -> Array:
    """The place of the first node of each tree among those of all."""
    return np.cumsum([0, *map(len, trees[:-1])])
