"""Discriminant analysis as a candidate of an ensemble."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from selfcal._support.checks import Int
from selfcal.calibrators.temperature import best_log_beta
from selfcal.ensembles.ensemble import Candidate
from selfcal.ensembles.folds import Split
from selfcal.ensembles.mixing import mean_log_loss
from selfcal.ensembles.settings import SPEED, MemberSettings
from selfcal.ensembles.training import Rows, TrainedMembers, held_out_logits
from selfcal.models.gaussian import MAX_COLUMNS, Moments
from selfcal.models.layers import RobustScaling
from selfcal.training.engine import TrainingResult
from selfcal.training.history import Recorder
from selfcal.training.problem import forward_in_blocks
from selfcal.training.run import OUT_OF_TIME, RAN_TO_THE_END

COMMON_ROWS = (np.inf, 300.0, 30.0, 3.0)
"""Rows that the covariance common to all classes counts as, in the order in which they are tried."""
DIAGONALS = (0.3, 0.03, 0.001, 0.8)
"""Weights of the diagonal of covariances."""
MAX_FITTED_ROWS = 50_000
"""Rows that determine the scaling of the columns, and the moments of each member."""
MAX_SELECTION_ROWS = 10_000
"""Held-out rows that the settings are selected on."""


@dataclass(frozen=True)
class Discriminant(Candidate):
    """Discriminant analysis with regularised covariances; held-out rows decide how much.

    Where classes are roughly Gaussian it needs fewer rows than a network, which does not know that.

    Args:
        name: The name in `selection_` and in reports.

    Reference:
        Friedman, Regularized discriminant analysis, 1989.
    """

    name: str = "discriminant"

    @property
    def method(self) -> str:
        """The name of the method that trains it."""
        return "moments"

    def trainer(self, rows: Rows, splits: Sequence[Split], settings: MemberSettings) -> DiscriminantTrainer:
        """Fits all splits with the same settings."""
        return DiscriminantTrainer(self, rows, splits, settings)


class DiscriminantTrainer:
    """Fits discriminant analysis to several splits, with one setting for all of them."""

    def __init__(
        self, candidate: Discriminant, rows: Rows, splits: Sequence[Split], settings: MemberSettings
    ) -> None:
        self.candidate = candidate
        self._rows, self._splits, self._n_classes = rows, splits, settings.make.n_classes
        n_rows, n_columns = rows.x.shape
        products = n_columns**2 if n_columns <= MAX_COLUMNS else n_columns
        tried = len(COMMON_ROWS) * len(DIAGONALS) * (n_columns + MAX_SELECTION_ROWS) * self._n_classes
        self.expected_seconds = len(splits) * products * (n_rows + tried) / SPEED

    def train(self, members: Sequence[int], max_seconds: float) -> TrainedMembers:
        """Fit the models of these numbers."""
        started, recorder = time.perf_counter(), Recorder()
        x, y, weight = self._rows.x, self._rows.y, self._rows.weight
        splits = [self._splits[member] for member in members]
        scaling = RobustScaling(x.shape[1]).fit(x[:: -(-len(x) // MAX_FITTED_ROWS)])

        def moments_of(own: Int) -> Moments:
            own = own[:: -(-len(own) // MAX_FITTED_ROWS)]
            scaled = scaling(x[own]).double().numpy()
            return Moments.of(scaled, y[own], None if weight is None else weight[own], self._n_classes)

        moments = [moments_of(own) for own, _ in splits]
        tried = [one for one in product(COMMON_ROWS, DIAGONALS) if moments[0].separate or np.isinf(one[0])]
        held_out = [rows[:: -(-len(splits) * len(rows) // MAX_SELECTION_ROWS)] for _, rows in splits]
        best, status = tried[0], RAN_TO_THE_END
        for place, setting in enumerate(tried):
            if place and time.perf_counter() - started > max_seconds:
                status = OUT_OF_TIME
                break
            loss = self._loss([own.network(scaling, *setting) for own in moments], held_out)
            if all(loss < other for _, other in recorder.selection):
                best = setting
            recorder.selection.append((place + 1, loss))
        models = [own.network(scaling, *best) for own in moments]
        result = TrainingResult(
            module=models[0],
            outer_params={},
            calibrator=None,
            history=recorder.history(),
            n_steps=len(recorder.selection),
            best_step=tried.index(best) + 1,
            status=status,
            seconds=time.perf_counter() - started,
        )
        return TrainedMembers(models, held_out_logits(models, splits, x), result)

    def _loss(self, models: Sequence[nn.Module], held_out: Sequence[Int]) -> float:
        """The log loss of each model on the rows held out from it, at their best temperature."""
        rows = np.concatenate(held_out)
        logits = [
            forward_in_blocks(model, self._rows.x[own]) for model, own in zip(models, held_out, strict=True)
        ]
        z, y = torch.cat(logits).double().numpy(), self._rows.y[rows]
        weight = np.ones(len(y)) if self._rows.weight is None else self._rows.weight[rows]
        z *= np.exp(best_log_beta(z, y, weight))
        return mean_log_loss(softmax(z, axis=1), y, weight)
