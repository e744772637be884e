"""Candidates with their members so far, and the pool of their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from torch import nn

from selfcal._support.checks import Float, Int
from selfcal.ensembles.ensemble import Candidate
from selfcal.ensembles.mixing import (
    TINY,
    fitted_temperature,
    mean_log_loss,
    mean_probs,
    pool,
    pool_weights,
    served_scale,
)
from selfcal.ensembles.modules import EnsembleModule, LogarithmicPool
from selfcal.ensembles.training import TrainedMembers
from selfcal.training.engine import TrainingResult
from selfcal.training.run import OUT_OF_TIME

ENOUGH_ROWS = 2_000
"""Held-out rows that determine the weights well, if not all rows are predicted by every candidate."""


class Trainer(Protocol):
    """Trains the members of a candidate, some at a time."""

    @property
    def candidate(self) -> Candidate:
        """The candidate that it trains."""

    @property
    def expected_seconds(self) -> float:
        """An estimate of the training time of all members, the same on every machine."""

    def train(self, members: Sequence[int], max_seconds: float) -> TrainedMembers:
        """Train the members of these numbers."""


@dataclass(eq=False)
class State:
    """A candidate while candidates are selected."""

    trainer: Trainer
    planned: int
    trained: TrainedMembers | None = None
    out_of_time: bool = False
    seconds: float = 0.0
    temperature: float = 1.0
    loss: float = float("inf")
    weight: float = 0.0
    probs: Float = field(default_factory=lambda: np.empty((0, 0)))

    def add(self, new: TrainedMembers, seconds: float, y: Int, weight: Float | None) -> None:
        """Add members; update the temperature and the log loss on the rows held out so far."""
        self.trained = new if self.trained is None else self.trained.joined(new)
        self.out_of_time = self.out_of_time or new.result.status == OUT_OF_TIME
        self.seconds += seconds
        self.temperature = fitted_temperature(self.trained.held_out_logits, y, weight)
        self.probs = mean_probs(self.trained.held_out_logits, self.temperature)
        self.loss = mean_log_loss(self.probs, y, weight)

    def expected_seconds(self, members: Sequence[int]) -> float:
        """The expected training time of some members."""
        return self.trainer.expected_seconds * len(members) / self.planned

    @property
    def result(self) -> TrainingResult:
        """The last result of the training loop."""
        assert self.trained is not None
        return self.trained.result

    @property
    def held_out_logits(self) -> Float:
        """The predictions for the rows held out from each member, as in `TrainedMembers`."""
        assert self.trained is not None
        return self.trained.held_out_logits

    @property
    def members(self) -> list[nn.Module]:
        """The members trained so far."""
        return [] if self.trained is None else self.trained.members

    @property
    def n_members(self) -> int:
        """The number of members trained so far."""
        return len(self.members)

    def record(self) -> dict[str, Any]:
        """The outcome as plain values."""
        tried = self.n_members > 0
        return {
            "network": self.trainer.candidate.name,
            "recipe": self.trainer.candidate.method,
            "weight": self.weight,
            "out_of_fold_log_loss": self.loss if tried else None,
            "temperature": self.temperature if tried else None,
            "networks": self.n_members,
            "planned": self.planned,
            "out_of_time": self.out_of_time,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Selection:
    """The outcome of a selection among candidates.

    Attributes:
        module: The members that predict, as one.
        probs: Out-of-fold probabilities; NaN for rows that all members were trained on.
        records: The candidates from the largest weight to the least, as plain values.
        ranked: The candidates in this order.
        result: The result of training the first one.
    """

    module: nn.Module
    probs: Float
    records: list[dict[str, Any]]
    ranked: list[Candidate]
    result: TrainingResult


class Pool(NamedTuple):
    """Candidates with their weights, and the log loss of their pool on the rows that all of them predict."""

    states: list[State]
    weights: Float
    loss: float


def best_pool(states: Sequence[State], y: Int, weight: Float | None) -> Pool:
    """The best pool of those that have members; the best candidate alone if no pool is better."""
    states = [state for state in states if state.n_members]
    given = _common(states)
    y, row_weight = y[given], None if weight is None else weight[given]
    log_probs = [_logs(state.probs[given]) for state in states]
    alone = [mean_log_loss(np.exp(one), y, row_weight) for one in log_probs]
    best = int(np.argmin(alone))
    found = Pool(states, np.eye(len(states))[best], alone[best])
    if len(states) > 1:
        weights = pool_weights(log_probs, y, row_weight)
        loss = mean_log_loss(pool(weights, log_probs), y, row_weight)
        if loss <= found.loss:
            found = Pool(states, weights, loss)
    return found


def _logs(probs: Float) -> Float:
    logs: Float = np.log(probs.clip(TINY))
    return logs


def _common(states: Sequence[State]) -> NDArray[np.bool_]:
    """The rows that all candidates predict."""
    return np.logical_and.reduce([~np.isnan(state.probs[:, 0]) for state in states])


def _comparable(states: Sequence[State]) -> list[State]:
    """All candidates that have enough held-out rows in common, or else those with the most members."""
    for n_members in sorted({state.n_members for state in states} - {0}):
        chosen = [state for state in states if state.n_members >= n_members]
        common = _common(chosen)
        if np.count_nonzero(common) >= ENOUGH_ROWS or common.all():
            break
    return chosen


def ranked(states: Sequence[State], y: Int, weight: Float | None, *, min_members: int) -> list[State]:
    """The candidates of at least so many members: those of the largest weight in the pool first, then the best."""
    best = best_pool(_comparable(states), y, weight)
    for state, own in zip(best.states, best.weights, strict=True):
        state.weight = float(own)
    return [state for state in sorted(states, key=_rank) if state.n_members >= min_members]


def selected(states: Sequence[State], y: Int, weight: Float | None) -> Selection:
    """The outcome: the best pool of the candidates, and a record of all."""
    chosen = [state for state in ranked(states, y, weight, min_members=1) if state.weight]
    probs = _out_of_fold(chosen)
    scale = served_scale(
        [state.held_out_logits for state in chosen],
        [state.temperature for state in chosen],
        [state.weight for state in chosen],
        y,
        weight,
        n_served=min(state.n_members for state in chosen),
    )
    for state in chosen:
        state.weight *= scale
    in_order = sorted(states, key=_rank)
    return Selection(
        _module(chosen).eval(),
        probs,
        [state.record() for state in in_order],
        [state.trainer.candidate for state in in_order],
        chosen[0].result,
    )


def _rank(state: State) -> tuple[float, int, float]:
    """The largest weight comes first, then the most members, then the lowest log loss."""
    return -state.weight, -state.n_members, state.loss


def _module(chosen: Sequence[State]) -> nn.Module:
    """The pool of the chosen candidates, or the only one."""
    if len(chosen) == 1:
        return _mean(chosen[0].members, chosen[0].temperature, 1 / chosen[0].weight)
    kinds = [_mean(state.trainer.candidate.served(state.members), state.temperature) for state in chosen]
    return LogarithmicPool(kinds, [state.weight for state in chosen])


def _mean(members: Sequence[nn.Module], of_each: float, of_mean: float = 1.0) -> EnsembleModule:
    """The mean of members at one temperature, itself at another one."""
    return EnsembleModule(members, temperatures=[of_each] * len(members), temperature=of_mean)


def _out_of_fold(chosen: Sequence[State]) -> Float:
    """The pool on every row, of the candidates that predict it; NaN where none does."""
    logits, found = np.zeros_like(chosen[0].probs), np.zeros(len(chosen[0].probs))
    for state in chosen:
        given = ~np.isnan(state.probs[:, 0])
        logits[given] += state.weight * _logs(state.probs[given])
        found[given] += state.weight
    logits[found == 0] = np.nan
    missing = (found > 0) & (found < found.max())  # as confident as the whole pool
    logits[missing] *= (found.max() / found[missing])[:, None]
    probs: Float = softmax(logits, axis=1)
    return probs
