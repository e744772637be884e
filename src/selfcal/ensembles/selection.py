"""Candidates raced on what they say about rows they have not seen, and how much each counts in the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from selfcal._support.checks import Float, Int
from selfcal.ensembles.modules import EnsembleModule
from selfcal.ensembles.training import TrainedMembers, fitted_temperature, label_loss, pooled
from selfcal.training.engine import TrainingResult
from selfcal.training.recipe import Candidate
from selfcal.training.run import OUT_OF_TIME

LEAST_WEIGHT = 0.05
"""A candidate that counts for less is not worth the time it takes to ask it."""

EPOCHS, SPEED = 40, 5e9
"""Passes that training usually takes, and multiplications a second on one core of a usual machine."""

SHARES = 3
"""How much more than a fair share of the time a candidate may take: few need to be cut short, and none starves."""

Train = Callable[[Candidate, Sequence[int], float], TrainedMembers]
"""Trains networks by number, within so many seconds."""


@dataclass
class CandidateState:
    """A candidate in the race."""

    candidate: Candidate
    cost: float
    planned: int
    team: TrainedMembers | None = None
    out_of_time: bool = False
    seconds: float = 0.0
    temperature: float = 1.0
    loss: float = float("inf")
    weight: float = 0.0
    probs: Float = field(default_factory=lambda: np.empty((0, 0)))

    def run(self, train: Train, members: Sequence[int], limit: float, y: Int, weight: Float | None) -> None:
        """Train further networks; the temperature, and the log loss on the rows that were held out so far."""
        started = time.perf_counter()
        team = train(self.candidate, members, limit)
        self.team = team if self.team is None else self.team.joined(team)
        self.out_of_time = self.out_of_time or team.result.status == OUT_OF_TIME
        self.temperature = fitted_temperature(self.team.votes, y, weight)
        self.probs = pooled(self.team.votes, self.temperature)
        self.loss = mean_loss(self.probs, y, weight)
        self.seconds += max(time.perf_counter() - started, team.result.seconds)  # a resumed one took longer

    @property
    def result(self) -> TrainingResult:
        """What the training loop returned last."""
        assert self.team is not None
        return self.team.result

    @property
    def members(self) -> list[nn.Module]:
        """The networks that have been trained."""
        return [] if self.team is None else self.team.members

    @property
    def networks(self) -> int:
        """How many they are."""
        return len(self.members)


@dataclass(frozen=True)
class Selection:
    """The outcome of a race.

    Attributes:
        committee: The networks that answer.
        probs: What they say about each row they have not seen; NaN for rows that all have seen.
        selection: The candidates from the best to the worst, as plain values.
        result: What the training loop returned for the candidate that counts most.
    """

    committee: EnsembleModule
    probs: Float
    selection: list[dict[str, Any]]
    result: TrainingResult


def race(
    candidates: Sequence[Candidate],
    n_members: int,
    train: Train,
    y: Int,
    weight: Float | None = None,
    *,
    costs: Sequence[float] | None = None,
    budget: float = float("inf"),
) -> Selection:
    """Race candidates by successive halving over folds, then weigh those that ended.

    If all can be expected to end in time, all run to the end. Otherwise each trains its first network; the better
    half train more; and so on, and nobody takes more than `SHARES` times a fair share of the time left. Who goes on
    depends on costs that are known beforehand and on the data, not on the clock, so that a race can be repeated; only
    a race that is cut short by its budget cannot. The first candidate is never left behind, and the answer is never
    worse than its own on the rows held out.

    Args:
        candidates: Who runs.
        n_members: How many networks a whole team has.
        train: Trains some networks of a candidate.
        y: The label codes of all rows.
        weight: Their sample weights.
        costs: How many seconds each candidate is expected to take in all.
        budget: How many seconds there are.
    """
    costs = costs or [0.0] * len(candidates)
    runners = [CandidateState(c, cost, n_members) for c, cost in zip(candidates, costs, strict=True)]
    rungs = _rungs(n_members, halving=sum(runner.cost for runner in runners) > budget)
    running, planned = runners, _planned(len(runners), rungs)
    for members in rungs:
        for runner in running:
            left = budget - sum(other.seconds for other in runners)
            if left > 0:
                share = SHARES * left * len(members) / planned
                runner.run(train, members, min(left, share), y, weight)
            planned -= len(members)
        running = _better_half(running)
    return _weighed(runners, y, weight)


def expected_seconds(module: nn.Module, n_rows: int, n_members: int) -> float:
    """A rough guess of how long a team takes, the same on every machine.

    Example:
        >>> expected_seconds(nn.Linear(9, 2), n_rows=5000, n_members=5)
        0.024
    """
    weights = sum(p.numel() for p in module.parameters())
    return 6 * weights * n_rows * n_members * EPOCHS / SPEED


def mean_loss(probs: Float, y: Int, weight: Float | None) -> float:
    """The mean log loss over the rows that somebody has voted on."""
    voted = ~np.isnan(probs[:, 0])
    return float(
        np.average(label_loss(probs[voted], y[voted]), weights=None if weight is None else weight[voted])
    )


def mixture_weights(probs: Sequence[Float], y: Int, weight: Float | None = None) -> Float:
    """The weights whose mixture of probabilities has the lowest log loss, by expectation maximisation.

    The log loss is convex in the weights, so that there is one answer.

    Example:
        >>> right, wrong = np.array([[0.9, 0.1]] * 4), np.array([[0.2, 0.8]] * 4)
        >>> mixture_weights([right, wrong], np.array([0, 0, 0, 0])).round(2)
        array([1., 0.])
    """
    likelihood = np.stack([p[np.arange(len(y)), y] for p in probs])
    shares = np.full(len(probs), 1 / len(probs))
    for _ in range(200):
        blame = shares[:, None] * likelihood
        shares = np.average(blame / blame.sum(axis=0).clip(np.finfo(float).tiny), axis=1, weights=weight)
    return shares / shares.sum()


def _rungs(n_members: int, *, halving: bool) -> list[range]:
    """Which networks are trained at each stage of the race: the first one, then twice as many each time."""
    if not halving:
        return [range(n_members)]
    rungs, start, size = [], 0, 1
    while start < n_members:
        rungs.append(range(start, min(n_members, start + size)))
        start, size = start + size, 2 * size
    return rungs


def _planned(n_runners: int, rungs: Sequence[Sequence[int]]) -> int:
    """How many networks are trained in all."""
    planned = 0
    for members in rungs:
        planned += n_runners * len(members)
        n_runners = _half(n_runners)
    return planned


def _half(n_runners: int) -> int:
    return 1 + max(1, (n_runners + 1) // 2 - 1)


def _better_half(running: list[CandidateState]) -> list[CandidateState]:
    """The first, and the best of those that have run."""
    first, *others = running
    ranked = sorted((runner for runner in others if runner.networks), key=lambda runner: runner.loss)
    return [first, *ranked[: _half(len(running)) - 1]]


def _weighed(runners: list[CandidateState], y: Int, weight: Float | None) -> Selection:
    most = max(runner.networks for runner in runners)
    ended = [runner for runner in runners if runner.networks == most]
    voted = ~np.isnan(ended[0].probs[:, 0])
    among = [runner.probs[voted] for runner in ended]
    counts = None if weight is None else weight[voted]
    shares = mixture_weights(among, y[voted], counts)
    shares = np.where(shares < LEAST_WEIGHT, 0.0, shares)
    blend = _mixture(shares / shares.sum(), among)
    if mean_loss(blend, y[voted], counts) > min(runner.loss for runner in ended):
        shares = np.array([float(runner.loss == min(r.loss for r in ended)) for runner in ended])
    for runner, share in zip(ended, shares / shares.sum(), strict=True):
        runner.weight = float(share)
    ranked = sorted(runners, key=lambda runner: (-runner.weight, -runner.networks, runner.loss))
    chosen = [runner for runner in ranked if runner.weight]
    mixed = _mixture([runner.weight for runner in chosen], [runner.probs for runner in chosen])
    together = np.log(mixed.clip(np.finfo(np.float64).tiny))[None]
    temperature = fitted_temperature(together, y, weight)
    committee = EnsembleModule(
        [member for runner in chosen for member in runner.members],
        weights=[runner.weight / runner.networks for runner in chosen for _ in range(runner.networks)],
        temperatures=[runner.temperature for runner in chosen for _ in range(runner.networks)],
        temperature=temperature,
    )
    records = [_record(runner) for runner in ranked]
    return Selection(committee.eval(), pooled(together, temperature), records, chosen[0].result)


def _mixture(weights: Sequence[float] | Float, probs: Sequence[Float]) -> Float:
    """The weighted sum, without a copy of all the probabilities."""
    mixed = weights[0] * probs[0]
    for weight, one in zip(weights[1:], probs[1:], strict=True):
        mixed += weight * one
    return mixed


def _record(runner: CandidateState) -> dict[str, Any]:
    tried = runner.networks > 0
    return {
        "network": runner.candidate.network,
        "recipe": runner.candidate.recipe.name,
        "weight": runner.weight,
        "out_of_fold_log_loss": runner.loss if tried else None,
        "temperature": runner.temperature if tried else None,
        "networks": runner.networks,
        "planned": runner.planned,
        "out_of_time": runner.out_of_time,
        "seconds": runner.seconds,
    }


def left_out(selection: Sequence[dict[str, Any]], budget: float) -> str:
    """What a time budget kept candidates from, in words; nothing if all were trained in full.

    Example:
        >>> tried = {"network": "mlp", "networks": 5, "planned": 5, "out_of_time": False}
        >>> left_out([tried], 60), left_out([tried, tried | {"network": "waves", "networks": 1}], 60)
        ('', "The time budget of 60 s left out a part of the training: 'waves' has 1 of 5 networks.
        Raise time_budget to train all of them in full.")
    """
    told, clocked = [], False
    for record in selection:
        name, networks, planned = record["network"], record["networks"], record["planned"]
        clocked |= record["out_of_time"] or not networks
        if not networks:
            told.append(f"{name!r} was not trained")
        elif networks < planned:
            told.append(f"{name!r} has {networks} of {planned} networks")
        elif record["out_of_time"]:
            told.append(f"{name!r} was trained for a shorter time")
    if not told:
        return ""
    speed = "The result depends on the speed of this machine. " if clocked else ""
    return (
        f"The time budget of {budget:g} s left out a part of the training: {'; '.join(told)}. {speed}"
        "Raise time_budget to train all of them in full."
    )
