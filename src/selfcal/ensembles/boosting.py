"""Gradient-boosted trees as candidates of an ensemble."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from selfcal._support.checks import Float, in_range, positive_int
from selfcal._support.progress import Advance, progress_bar
from selfcal.ensembles.ensemble import Candidate
from selfcal.ensembles.folds import Split
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows, TrainedMembers, held_out_logits
from selfcal.ensembles.tree_checkpoints import trained_once
from selfcal.models.trees import TreeColumns, Trees
from selfcal.training.engine import TrainingResult
from selfcal.training.history import Recorder
from selfcal.training.run import OUT_OF_TIME, RAN_TO_THE_END, STOPPED_EARLY

FIRST_TREES, GROWTH = 25, 2.5
"""Iterations before the held-out rows are first predicted, and how many times as many before the next time."""
MAX_TREES = 8_000
"""Trees of a model at most: with many classes there are fewer iterations."""
MANY_TREES = 6
"""Trees of an iteration from which on the learning rate is larger, as the square root of their number."""
PRUDENT = 0.85
"""The part of the time that further iterations may be expected to take."""
SURE = 0.8
"""If the best number of iterations is below this fraction of those trained, more of them would not help."""


@dataclass(frozen=True)
class Boosting(Candidate):
    """Gradient-boosted trees by scikit-learn; held-out rows decide about the number of iterations.

    Categories are split as categories, and missing values are known to be missing, if the features say so (see
    `selfcal.tabular.features.FeatureGroups`).

    Args:
        name: The name in `selection_` and in reports.
        leaves: Maximum number of leaves of a tree.
        learning_rate: The factor of every tree.
        max_features: Fraction of the columns, drawn anew for each split.
        min_rows: Rows that a leaf must have.
        l2: The L2 penalty on the values of leaves.
        max_iter: Iterations at most, of one tree for each class, or one tree for two classes.
        additive: Whether each tree splits a single column, so that the effects of columns add up.

    Reference:
        Ke et al., LightGBM: a highly efficient gradient boosting decision tree, 2017.
    """

    name: str = "boosting"
    leaves: int = 15
    learning_rate: float = 0.06
    max_features: float = 0.25
    min_rows: int = 10
    l2: float = 1.0
    max_iter: int = 1000
    additive: bool = False

    def __post_init__(self) -> None:
        positive_int("leaves", self.leaves, low=2)
        in_range("learning_rate", self.learning_rate, 0, open_low=True)
        in_range("max_features", self.max_features, 0, 1, open_low=True)
        positive_int("min_rows", self.min_rows)
        in_range("l2", self.l2, 0)
        positive_int("max_iter", self.max_iter)

    @property
    def method(self) -> str:
        """The name of the method that trains it."""
        return "scikit-learn"

    def trainer(self, rows: Rows, splits: Sequence[Split], settings: MemberSettings) -> BoostingTrainer:
        """Trains the trees of all splits up to the same number of iterations."""
        return BoostingTrainer(self, rows, splits, settings)

    def model(
        self, columns: TreeColumns, seed: int, trees_per_iter: int = 1
    ) -> HistGradientBoostingClassifier:
        """An untrained model, to be fitted in several goes.

        With many trees per iteration the learning rate is larger, since there are fewer iterations.
        """
        return HistGradientBoostingClassifier(
            max_leaf_nodes=self.leaves,
            learning_rate=min(1.0, self.learning_rate * max(1.0, trees_per_iter / MANY_TREES) ** 0.5),
            max_features=self.max_features,
            min_samples_leaf=self.min_rows,
            l2_regularization=self.l2,
            categorical_features=columns.categorical or None,
            interaction_cst="no_interactions" if self.additive else None,
            early_stopping=False,
            warm_start=True,
            random_state=seed,
        )


class BoostingTrainer:
    """Trains boosted trees for several splits, with one number of iterations for all of them."""

    def __init__(
        self, candidate: Boosting, rows: Rows, splits: Sequence[Split], settings: MemberSettings
    ) -> None:
        self.candidate = candidate
        self._rows, self._splits, self._settings = rows, splits, settings
        self._seed, self._n_classes = settings.seed, settings.make.n_classes
        self._columns = TreeColumns(rows.x.shape[1], rows.groups)
        self._trees_per_iter = 1 if self._n_classes == 2 else self._n_classes
        self._max_iter = min(candidate.max_iter, max(FIRST_TREES, MAX_TREES // self._trees_per_iter))
        trees = len(splits) * min(USUAL_ITER, self._max_iter) * self._trees_per_iter
        cells = len(rows.y) * self._columns.n_columns
        self.expected_seconds = trees * (TREE_SECONDS + CELL_SECONDS * cells)

    def train(self, members: Sequence[int], max_seconds: float) -> TrainedMembers:
        """Train the models of these numbers, unless an earlier process has."""
        return trained_once(
            lambda: self._shown(members, max_seconds),
            self.candidate,
            members,
            rows=self._rows,
            splits=self._splits,
            settings=self._settings,
        )

    def _shown(self, members: Sequence[int], max_seconds: float) -> TrainedMembers:
        with progress_bar("Boosting", 1, self._settings.verbose, ends_early=True) as advance:
            return self._trained(members, max_seconds, advance)

    def _trained(self, members: Sequence[int], max_seconds: float, advance: Advance) -> TrainedMembers:
        started, recorder = time.perf_counter(), Recorder()
        table = self._columns(self._rows.x).double().numpy()
        models = [
            self.candidate.model(self._columns, self._seed + member, self._trees_per_iter)
            for member in members
        ]
        splits = [self._splits[member] for member in members]
        losses, wanted, status = np.empty(0), FIRST_TREES, ""
        while not status:
            wanted = min(wanted, self._max_iter)
            parts = []
            for place, (model, split) in enumerate(zip(models, splits, strict=True)):
                over = len(losses) + (wanted - len(losses)) * place / len(models)
                advance(over / self._max_iter, f"up to iteration {wanted:,}")
                parts.append(self._fitted(model, split, table, wanted, len(losses)))
            losses = np.append(losses, np.mean(parts, axis=0))
            # as many iterations as can be expected to end in time; later ones take a little longer
            seconds = max(time.perf_counter() - started, 1e-9)
            affordable = round(min(GROWTH, PRUDENT * max_seconds / seconds) * len(losses))
            if losses.argmin() + 1 < SURE * len(losses):
                status = STOPPED_EARLY
            elif len(losses) == self._max_iter:
                status = RAN_TO_THE_END
            elif affordable <= len(losses):
                status = OUT_OF_TIME
            wanted = affordable
        best = int(losses.argmin()) + 1
        recorder.selection = [(count + 1, float(loss)) for count, loss in enumerate(losses)]
        trees = [Trees.of(model, self._columns, self._n_classes, iterations=best) for model in models]
        result = TrainingResult(
            module=trees[0],
            outer_params={},
            calibrator=None,
            history=recorder.history(),
            n_steps=len(losses),
            best_step=best,
            status=status,
            seconds=time.perf_counter() - started,
        )
        return TrainedMembers(list(trees), held_out_logits(trees, splits, self._rows.x), result)

    def _fitted(
        self, model: HistGradientBoostingClassifier, split: Split, table: Float, wanted: int, known: int
    ) -> Float:
        """Add iterations to a model; returns the log loss on held-out rows after each new one."""
        y, weight = self._rows.y, self._rows.weight
        own, held_out = split
        model.set_params(max_iter=wanted)
        model.fit(table[own], y[own], None if weight is None else weight[own])
        place = np.searchsorted(model.classes_, y[held_out])
        seen = model.classes_[place.clip(max=len(model.classes_) - 1)] == y[held_out]
        losses = []
        for count, probs in enumerate(model.staged_predict_proba(table[held_out])):
            if count >= known:
                of_label = np.where(seen, probs[np.arange(len(place)), place * seen], 0.0)
                row_losses = -np.log(of_label.clip(np.finfo(np.float32).tiny))
                losses.append(np.average(row_losses, weights=None if weight is None else weight[held_out]))
        return np.array(losses)


USUAL_ITER = 200
"""Iterations that training usually takes."""
TREE_SECONDS, CELL_SECONDS = 4e-4, 6e-9
"""The time that a tree takes, and each cell of the table for each tree, on one core of a usual machine."""
