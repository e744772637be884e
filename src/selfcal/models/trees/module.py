"""Fitted decision trees of scikit-learn as a module: float32 rows in, logits out, stored without pickle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfcal._support.checks import positive_int
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.spec import Builder, Wrapper
from selfcal.models.trees.columns import TreeColumns
from selfcal.models.trees.leaves import Probabilities, Scores
from selfcal.models.trees.masks import BLOCK_ROWS, Masks
from selfcal.models.trees.merging import first_trees
from selfcal.models.trees.scikit_learn import read
from selfcal.models.trees.steps import Splits, Steps
from selfcal.tabular.features import FeatureGroups

MIN_PROBABILITY = 1e-6
"""A class that no tree of a forest votes for has this probability, before all are divided by their sum."""
ABSENT_LOGIT = -30.0
"""Of a class that boosting did not see in training."""
BLOCK_PLACES = 1 << 16
"""Rows times trees that are worked on together, so that they stay in the cache of a core."""
BLOCK_NUMBERS = 1 << 21
"""Numbers of a block of rows, for tables of very many columns."""


class Trees(Wrapper, key="trees"):
    """An ensemble of decision trees: gradient boosting, or a forest.

    `Trees.of` makes it from a fitted classifier of scikit-learn, whose predictions it repeats. With boosting, the
    logits are its scores, ``(0, s)`` for two classes; with a forest, the logarithm of the mean class probabilities,
    which are at least `MIN_PROBABILITY`. It takes encoded features, as networks do, and turns them back into
    numbers with missing values and categories with `TreeColumns`.

    Nodes are in the order of `selfcal.models.trees.nodes`. Thresholds are rounded down to single precision, which
    changes no comparison with a number of single precision. The scores of boosting are added up in fixed point, so
    that the logits of a row do not depend on other rows. `Masks` finds the leaves of small boosted trees several
    times faster than `Steps`, which is for deep trees and for traces. There is nothing to train.

    Args:
        columns: The columns that trees split.
        n_classes: Classes, one logit each.
        n_trees: Number of trees.
        n_splits: Inner nodes of all trees.
        n_category_splits: Those that split a category.
        n_probabilities: Probabilities other than zero in all leaves of a forest, which averages them; None for
            boosting, which adds up one score of each leaf.
        outputs: The class of each score. Boosting has trees for each score in turn; a leaf of a forest has
            probabilities of some of them.

    Example:
        >>> from sklearn.ensemble import HistGradientBoostingClassifier
        >>> x = torch.linspace(-1, 1, 200)[:, None]
        >>> boosting = HistGradientBoostingClassifier(max_iter=5).fit(x, x[:, 0] > 0)
        >>> trees = Trees.of(boosting, TreeColumns(1), n_classes=2)
        >>> np.allclose(trees(x).softmax(dim=1), boosting.predict_proba(x), atol=1e-6)
        True
    """

    is_leaf: Tensor
    column: Tensor
    threshold: Tensor
    missing_right: Tensor
    category: Tensor
    level_right: Tensor
    leaf_size: Tensor
    leaf_output: Tensor
    value: Tensor
    base: Tensor
    steps: Steps
    leaves: Scores | Probabilities
    masks: Masks | None

    def __init__(
        self,
        columns: TreeColumns,
        n_classes: int,
        *,
        n_trees: int,
        n_splits: int,
        n_category_splits: int,
        n_probabilities: int | None,
        outputs: Sequence[int],
    ) -> None:
        super().__init__()
        self.columns = columns
        self.n_classes = n_classes
        self.n_trees = positive_int("n_trees", n_trees)
        self.n_splits = positive_int("n_splits", n_splits, low=0)
        self.n_category_splits = positive_int("n_category_splits", n_category_splits, low=0)
        self.n_probabilities = None
        if n_probabilities is not None:
            self.n_probabilities = positive_int("n_probabilities", n_probabilities)
        self.outputs = [positive_int("outputs", output, low=0) for output in outputs]
        if not self.outputs or len({*self.outputs}) != len(self.outputs) or max(self.outputs) >= n_classes:
            raise ConfigError(f"outputs must be different classes, of {n_classes}; got {self.outputs[:10]}.")
        if not self.averaged and n_trees % len(self.outputs):
            raise ConfigError(f"n_trees must be a multiple of the {len(self.outputs)} scores; got {n_trees}.")
        shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "is_leaf": (torch.bool, (n_trees + 2 * n_splits,)),
            "column": (torch.int32, (n_splits,)),
            "threshold": (torch.float32, (n_splits,)),
            "missing_right": (torch.bool, (n_splits,)),
            "category": (torch.int32, (n_splits,)),
            "level_right": (torch.bool, (n_category_splits, max(columns.n_levels, default=0) + 1)),
            "value": (torch.float32, (n_trees + n_splits,)),
            "base": (torch.float64, (n_classes,)),
        }
        if self.n_probabilities is not None:
            small = torch.int16 if n_classes < 1 << 15 else torch.int32
            shapes["leaf_size"] = (small, (n_trees + n_splits,))
            shapes["leaf_output"] = (small, (self.n_probabilities,))
            shapes["value"] = (torch.float32, (self.n_probabilities,))
        for name, (dtype, shape) in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=dtype))
        self.register_load_state_dict_post_hook(_loaded)

    @classmethod
    def of(cls, model: Any, columns: TreeColumns, n_classes: int, *, iterations: int | None = None) -> Self:
        """The trees of a fitted classifier of scikit-learn.

        Args:
            model: A `HistGradientBoostingClassifier`, `ExtraTreesClassifier` or `RandomForestClassifier` that was
                fitted on ``columns(x)``, with class codes from 0 to `n_classes` - 1 as labels. Boosting may take the
                columns `columns.categorical` as categories.
            columns: The columns that it was fitted on.
            n_classes: Classes, one logit each; one that did not occur in training gets a very low logit.
            iterations: Number of iterations of boosting to take, from the first one on; by default all.
        """
        fitted = read(model, columns, iterations)
        classes = fitted.classes.astype(np.int64).tolist()
        if not 0 <= min(classes) <= max(classes) < n_classes:
            raise ConfigError(f"The labels must be codes from 0 to {n_classes - 1}; got {classes[:10]}.")
        boosted = fitted.baseline is not None
        outputs = classes[-len(fitted.baseline) :] if fitted.baseline is not None else classes
        trees = cls(
            columns,
            n_classes,
            n_trees=fitted.n_trees,
            n_splits=len(fitted.column),
            n_category_splits=len(fitted.level_right),
            n_probabilities=None if boosted else len(fitted.value),
            outputs=outputs,
        )
        base = np.full(n_classes, ABSENT_LOGIT if boosted else 0.0)
        base[classes] = 0.0
        if fitted.baseline is not None:
            base[outputs] = fitted.baseline
        trees._fill(fitted._asdict() | {"threshold": _rounded_down(fitted.threshold), "base": base})
        return trees

    @classmethod
    def merged(cls, forests: Sequence[Trees], n_trees: int) -> Self:
        """One forest of the first trees of several forests, which have columns and outputs in common.

        Args:
            forests: The forests.
            n_trees: Number of trees of each of them to take.
        """
        first = forests[0]
        if not all(one.averaged and one.outputs == first.outputs for one in forests):
            raise ConfigError("Only forests with probabilities of the same classes can be merged.")
        nodes = first_trees([forest._arrays() for forest in forests], [f.n_trees for f in forests], n_trees)
        trees = cls(
            first.columns,
            first.n_classes,
            n_trees=n_trees * len(forests),
            n_splits=len(nodes["column"]),
            n_category_splits=0,
            n_probabilities=len(nodes["value"]),
            outputs=first.outputs,
        )
        trees._fill(nodes | {"level_right": first.level_right.numpy(), "base": first.base.numpy()})
        return trees

    def _fill(self, arrays: dict[str, Any]) -> None:
        for name, buffer in self.named_buffers():
            buffer.copy_(torch.from_numpy(arrays[name]))
        self._prepare()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: buffer.numpy(force=True) for name, buffer in self.named_buffers(recurse=False)}

    def forward(self, x: Tensor) -> Tensor:
        """The logits of these rows."""
        if torch.compiler.is_compiling():  # a trace is for any number of rows
            return self._logits(x)
        return torch.cat([self._logits(block) for block in x.split(self._block_rows)])

    def _logits(self, x: Tensor) -> Tensor:
        columns = self.columns(x)
        if self.masks is None or torch.compiler.is_compiling():
            scores = self.leaves(self.steps(columns))
        else:
            scores = self.masks(columns)
        without = torch.zeros_like(scores[:, :1])
        scores = torch.cat([scores, without], dim=1)[:, self._places] + self.base
        return (scores.clamp(min=MIN_PROBABILITY).log() if self.averaged else scores).float()

    def _prepare(self) -> None:
        """Check the arrays, which may come from an untrusted file, and derive what `forward` needs."""
        if self.value.is_meta:
            return
        arrays = self._arrays()
        splits = Splits(*(arrays[name] for name in Splits._fields))
        nodes = arrays["is_leaf"], self.n_trees, splits
        self.steps, self.masks = Steps(*nodes, self.columns), None
        if self.averaged:
            pairs = arrays["leaf_size"], arrays["leaf_output"], arrays["value"]
            self.leaves = Probabilities(*pairs, n_outputs=len(self.outputs))
            return
        self.leaves = Scores(arrays["value"], self.n_trees, len(self.outputs))
        if Masks.suit(*nodes):
            self.masks = Masks(*nodes, value=arrays["value"], n_outputs=len(self.outputs))

    @property
    def _block_rows(self) -> int:
        """Rows to work on together."""
        if self.masks is not None:
            return BLOCK_ROWS
        widest = max(
            2 * self.columns.n_columns + self.n_category_splits,
            self.n_trees * self.leaves.width,
            self.n_classes,
        )
        return max(1, min(BLOCK_PLACES // self.n_trees, BLOCK_NUMBERS // widest))

    @property
    def averaged(self) -> bool:
        """Whether the trees are a forest."""
        return self.n_probabilities is not None

    @property
    def _places(self) -> list[int]:
        """The score of each class; the one after the last for a class without."""
        known = {output: place for place, output in enumerate(self.outputs)}
        return [known.get(output, len(known)) for output in range(self.n_classes)]

    def spec(self) -> dict[str, Any]:
        """The sizes of the arrays, and what the columns are."""
        groups = self.columns.groups
        sizes = {name: getattr(self, name) for name in _SIZES}
        return {
            **sizes,
            "n_probabilities": self.n_probabilities,
            "outputs": self.outputs,
            "missing": groups.missing,
            "categories": groups.categories,
        }

    @classmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """Trees of these sizes, whose arrays are all zero."""
        build.count_network()
        if not isinstance(value, dict):
            raise ModelFormatError(f"Trees must be described by their sizes; got a {type(value).__name__}.")
        columns = TreeColumns(build.n_features, FeatureGroups(value["missing"], value["categories"]))
        sizes = {name: value[name] for name in _SIZES}
        return cls(
            columns,
            build.n_classes,
            n_probabilities=value.get("n_probabilities"),  # older boosting lacks it
            outputs=value["outputs"],
            **sizes,
        )

    def summary(self) -> str:
        """The number of trees, and how they are combined."""
        return f"{'forest' if self.averaged else 'boosting'} of {self.n_trees} trees"

    def extra_repr(self) -> str:
        return f"n_trees={self.n_trees}, n_splits={self.n_splits}, averaged={self.averaged}"


def _loaded(trees: Trees, _: Any) -> None:
    """A hook, which is no method since methods keep their object when modules are copied."""
    trees._prepare()


_SIZES = ("n_trees", "n_splits", "n_category_splits")


def _rounded_down(threshold: NDArray[Any]) -> NDArray[np.float32]:
    """The largest numbers of single precision that are not larger, and finite.

    Example:
        >>> _rounded_down(np.array([0.1, 0.5, np.inf]))
        array([9.9999994e-02, 5.0000000e-01, 3.4028235e+38], dtype=float32)
    """
    rounded = np.minimum(threshold, np.finfo(np.float32).max).astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
