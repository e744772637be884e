"""Successive halving over candidates by their held-out predictions, and the weight of each in the mixture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import nn

from selfcal._support.checks import Float, Int
from selfcal.ensembles.ensemble import Candidate
from selfcal.ensembles.mixing import fitted_temperature, mean_log_loss, mean_probs, mixture, mixture_weights
from selfcal.ensembles.modules import EnsembleModule
from selfcal.ensembles.training import TrainedMembers
from selfcal.training.engine import TrainingResult
from selfcal.training.run import OUT_OF_TIME

MIN_WEIGHT = 0.05
"""A candidate of less weight is left out: its gain does not justify its prediction time."""

MAX_TIME_RATIO = 3
"""A candidate may take this many times an equal part of the time left: few are cut short, all are trained."""


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


@dataclass
class _State:
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

    def train(self, members: Sequence[int], max_seconds: float, y: Int, weight: Float | None) -> None:
        """Train further members; update the temperature and the log loss on the rows held out so far."""
        started = time.perf_counter()
        new = self.trainer.train(members, max_seconds)
        self.trained = new if self.trained is None else self.trained.joined(new)
        self.out_of_time = self.out_of_time or new.result.status == OUT_OF_TIME
        self.temperature = fitted_temperature(self.trained.held_out_logits, y, weight)
        self.probs = mean_probs(self.trained.held_out_logits, self.temperature)
        self.loss = mean_log_loss(self.probs, y, weight)
        self.seconds += max(
            time.perf_counter() - started, new.result.seconds
        )  # the time before a resumption is part of it

    @property
    def result(self) -> TrainingResult:
        """The last result of the training loop."""
        assert self.trained is not None
        return self.trained.result

    @property
    def members(self) -> list[nn.Module]:
        """The networks trained so far."""
        return [] if self.trained is None else self.trained.members

    @property
    def networks(self) -> int:
        """The number of networks trained so far."""
        return len(self.members)

    def record(self) -> dict[str, Any]:
        """The outcome as plain values."""
        tried = self.networks > 0
        return {
            "network": self.trainer.candidate.network,
            "recipe": self.trainer.candidate.recipe.name,
            "weight": self.weight,
            "out_of_fold_log_loss": self.loss if tried else None,
            "temperature": self.temperature if tried else None,
            "networks": self.networks,
            "planned": self.planned,
            "out_of_time": self.out_of_time,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Selection:
    """The outcome of a selection among candidates.

    Attributes:
        module: The networks that predict, as one.
        probs: Out-of-fold probabilities; NaN for rows that all networks were trained on.
        records: The candidates from the largest weight to the least, as plain values.
        best: The candidate of the largest weight.
        result: The result of the training loop for it.
    """

    module: EnsembleModule
    probs: Float
    records: list[dict[str, Any]]
    best: Candidate
    result: TrainingResult


def select(
    trainers: Sequence[Trainer],
    n_members: int,
    y: Int,
    weight: Float | None = None,
    *,
    budget: float = float("inf"),
) -> Selection:
    """Train candidates, by successive halving if time is short, and mix those that were trained furthest.

    If all candidates can be expected to end in time, all are trained in full. Otherwise each trains its first member;
    the better half train more; and so on. No candidate takes more than `MAX_TIME_RATIO` times an equal part of the
    time left. Which candidates continue depends on estimates known beforehand and on the data, not on the clock, so
    that the result is reproducible unless the budget cuts it short. The first candidate always continues, and on the
    held-out rows the mixture is never worse than any candidate alone.

    Args:
        trainers: One for each candidate.
        n_members: Number of members of a fully trained candidate.
        y: The label codes of all rows.
        weight: Their sample weights.
        budget: The time budget, in seconds.
    """
    states = [_State(trainer, n_members) for trainer in trainers]
    rungs = _rungs(n_members, halving=sum(trainer.expected_seconds for trainer in trainers) > budget)
    running, planned = states, _planned(len(states), rungs)
    for members in rungs:
        for state in running:
            left = budget - sum(other.seconds for other in states)
            if left > 0:
                most = MAX_TIME_RATIO * left * len(members) / planned
                state.train(members, min(left, most), y, weight)
            planned -= len(members)
        running = _better_half(running)
    return _mixed(states, y, weight)


def time_budget_note(records: Sequence[dict[str, Any]], budget: float) -> str:
    """A note on candidates that a time budget kept from being trained in full; empty if there are none.

    Example:
        >>> full = {"network": "mlp", "networks": 5, "planned": 5, "out_of_time": False}
        >>> time_budget_note([full], 60), time_budget_note([full, full | {"network": "linear", "networks": 1}], 60)
        ('', "The time budget of 60 s left out a part of the training: 'linear' has 1 of 5 networks.
        Raise time_budget to train all of them in full.")
    """
    cuts, clocked = [], False
    for record in records:
        name, networks, planned = record["network"], record["networks"], record["planned"]
        clocked |= record["out_of_time"] or not networks
        if not networks:
            cuts.append(f"{name!r} was not trained")
        elif networks < planned:
            cuts.append(f"{name!r} has {networks} of {planned} networks")
        elif record["out_of_time"]:
            cuts.append(f"{name!r} was trained for a shorter time")
    if not cuts:
        return ""
    speed = "The result depends on the speed of this machine. " if clocked else ""
    return (
        f"The time budget of {budget:g} s left out a part of the training: {'; '.join(cuts)}. {speed}"
        "Raise time_budget to train all of them in full."
    )


def _rungs(n_members: int, *, halving: bool) -> list[range]:
    """The members to train at each rung: the first one, then twice as many each time."""
    if not halving:
        return [range(n_members)]
    rungs, start, size = [], 0, 1
    while start < n_members:
        rungs.append(range(start, min(n_members, start + size)))
        start, size = start + size, 2 * size
    return rungs


def _planned(n_candidates: int, rungs: Sequence[Sequence[int]]) -> int:
    """The total number of members to train."""
    planned = 0
    for members in rungs:
        planned += n_candidates * len(members)
        n_candidates = _half(n_candidates)
    return planned


def _half(n_candidates: int) -> int:
    return 1 + max(1, (n_candidates + 1) // 2 - 1)


def _better_half(running: list[_State]) -> list[_State]:
    """The first candidate, and the best of the others that have a member."""
    first, *others = running
    ranked = sorted((state for state in others if state.networks), key=lambda state: state.loss)
    return [first, *ranked[: _half(len(running)) - 1]]


def _mixed(states: list[_State], y: Int, weight: Float | None) -> Selection:
    most = max(state.networks for state in states)
    ended = [state for state in states if state.networks == most]
    for state, own in zip(ended, _weights(ended, y, weight), strict=True):
        state.weight = float(own)
    ranked = sorted(states, key=lambda state: (-state.weight, -state.networks, state.loss))
    chosen = [state for state in ranked if state.weight]
    mixed = mixture([state.weight for state in chosen], [state.probs for state in chosen])
    logits = np.log(mixed.clip(np.finfo(np.float64).tiny))[None]
    temperature = fitted_temperature(logits, y, weight)
    module = EnsembleModule(
        [member for state in chosen for member in state.members],
        weights=[state.weight / state.networks for state in chosen for _ in range(state.networks)],
        temperatures=[state.temperature for state in chosen for _ in range(state.networks)],
        temperature=temperature,
    )
    records = [state.record() for state in ranked]
    best = chosen[0]
    return Selection(
        module.eval(), mean_probs(logits, temperature), records, best.trainer.candidate, best.result
    )


def _weights(ended: list[_State], y: Int, weight: Float | None) -> Float:
    """The mixing weights of candidates, without those under `MIN_WEIGHT`; the best alone if no mixture is better."""
    given = ~np.isnan(ended[0].probs[:, 0])
    probs = [state.probs[given] for state in ended]
    row_weight = None if weight is None else weight[given]
    weights = mixture_weights(probs, y[given], row_weight)
    weights = np.where(weights < MIN_WEIGHT, 0.0, weights)
    least = min(state.loss for state in ended)
    if mean_log_loss(mixture(weights / weights.sum(), probs), y[given], row_weight) > least:
        weights = np.array([float(state.loss == least) for state in ended])
    normalized: Float = weights / weights.sum()
    return normalized
