"""Successive halving over candidates by their held-out predictions, and the weight of each in the mixture."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.special import softmax
from torch import nn

from selfcal._support.checks import Float, Int
from selfcal._support.jobs import run_calls
from selfcal.ensembles.ensemble import Candidate
from selfcal.ensembles.mixing import fitted_temperature, mean_log_loss, mean_probs, pool, pool_weights
from selfcal.ensembles.modules import EnsembleModule, LogarithmicPool
from selfcal.ensembles.training import TrainedMembers
from selfcal.training.engine import TrainingResult
from selfcal.training.run import OUT_OF_TIME

QUICK = 1 / 16
"""A candidate that needs no more than this part of the time is trained in full, before all others."""

MAX_TIME_RATIO = 3
"""A candidate may take this many times its part of the time left, or what is left if all others take as many times
what they are expected to: few are cut short, all are trained."""

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


def select(
    trainers: Sequence[Trainer],
    n_members: int,
    y: Int,
    weight: Float | None = None,
    *,
    budget: float = float("inf"),
    n_jobs: int | None = None,
) -> Selection:
    """Train candidates, by successive halving if time is short, and pool their predictions.

    If all candidates can be expected to end in time, all are trained in full. Otherwise those that take a small part
    of the time are; each of the others trains its first member, the better half train more, and so on. Better are
    those whose pool with what was trained in full is better. No candidate takes the
    time that the others need. Which candidates continue depends on estimates known beforehand and on the data, not on
    the clock, so that the result is reproducible unless the budget cuts it short. On the held-out rows the pool is
    never worse than any candidate alone.

    Args:
        trainers: One for each candidate, the most useful first: if time runs out, the last ones are not trained. At
            least one member of the first is, whatever the budget.
        n_members: Number of members of a fully trained candidate.
        y: The label codes of all rows.
        weight: Their sample weights.
        budget: The time budget, in seconds.
        n_jobs: Number of candidates that are trained at the same time, in processes of their own. The result is the
            same.
    """
    states = [_State(trainer, n_members) for trainer in trainers]
    work = _Work(y, weight, budget, n_jobs)
    quick, slow = list(states), list[_State]()
    if not work.has_time_for(states):
        quick = [state for state in states if work.is_quick(state)]
        slow = [state for state in states if not work.is_quick(state)]
    rungs = _rungs(n_members) if slow else []
    work.train(quick, range(n_members), later=_expected(slow, rungs))
    for place, members in enumerate(rungs):
        work.train(slow, members, later=_expected(_kept(slow), rungs[place + 1 :]))
        slow = _better_half(slow, quick, y, weight)
    return _pooled(states, y, weight)


class _Work:
    """Trains members within a time budget."""

    def __init__(self, y: Int, weight: Float | None, budget: float, n_jobs: int | None) -> None:
        self._y, self._weight, self._n_jobs = y, weight, n_jobs
        self._deadline = time.time() + budget
        self._workers = effective_n_jobs(n_jobs)
        self._budget = budget * self._workers
        self._started = False

    def has_time_for(self, states: Sequence[_State]) -> bool:
        """Whether all members of all candidates can be expected to end in time."""
        return sum(state.trainer.expected_seconds for state in states) <= self._budget

    def is_quick(self, state: _State) -> bool:
        """Whether training all members takes a small part of the time."""
        return state.trainer.expected_seconds <= QUICK * self._budget

    def train(self, states: Sequence[_State], members: Sequence[int], *, later: float) -> None:
        """Train some members of each candidate; what is planned for later takes part in sharing the time left."""
        left = max(0.0, self._deadline - time.time()) * self._workers
        costs = {id(state): state.expected_seconds(members) for state in states}
        planned = later + sum(costs.values())

        def calls() -> Iterator[tuple[Any, ...]]:
            for state in states:
                share = left * costs[id(state)] / planned if planned > 0 else left
                others = planned - costs[id(state)]
                most = max(MAX_TIME_RATIO * share, left - MAX_TIME_RATIO * others)
                first, self._started = not self._started, True
                yield state.trainer, members, self._deadline, most, first

        outcomes = run_calls(_train, calls(), n_jobs=self._n_jobs)
        for state, outcome in zip(states, outcomes, strict=True):
            if outcome is not None:
                trained, seconds = outcome
                before = max(
                    0.0, trained.result.seconds - seconds
                )  # in an earlier process that this one resumes
                self._deadline -= before / self._workers
                state.add(trained, seconds + before, self._y, self._weight)


def _train(
    trainer: Trainer, members: Sequence[int], deadline: float, most: float, in_any_case: bool
) -> tuple[TrainedMembers, float] | None:
    """Train members, if there is time left, and measure how long it takes."""
    left = deadline - time.time()
    if left <= 0 and not in_any_case:
        return None
    started = time.perf_counter()
    trained = trainer.train(members, min(left, most))
    return trained, time.perf_counter() - started


def time_budget_note(records: Sequence[dict[str, Any]], budget: float) -> str:
    """A note on candidates that a time budget kept from being trained in full; empty if there are none.

    Example:
        >>> full = {"network": "mlp", "networks": 5, "planned": 5, "out_of_time": False}
        >>> time_budget_note([full], 60), time_budget_note([full, full | {"network": "linear", "networks": 1}], 60)
        ('', "The time budget of 60 s left out a part of the training: 'linear' has 1 of 5 members.
        Raise time_budget to train all of them in full.")
    """
    cuts, clocked = [], False
    for record in records:
        name, networks, planned = record["network"], record["networks"], record["planned"]
        clocked |= record["out_of_time"] or not networks
        if not networks:
            cuts.append(f"{name!r} was not trained")
        elif networks < planned:
            cuts.append(f"{name!r} has {networks} of {planned} members")
        elif record["out_of_time"]:
            cuts.append(f"{name!r} was trained for a shorter time")
    if not cuts:
        return ""
    speed = "The result depends on the speed of this machine. " if clocked else ""
    return (
        f"The time budget of {budget:g} s left out a part of the training: {'; '.join(cuts)}. {speed}"
        "Raise time_budget to train all of them in full."
    )


def _rungs(n_members: int) -> list[range]:
    """The members to train at each rung: the first one, then twice as many each time."""
    rungs, start, size = [], 0, 1
    while start < n_members:
        rungs.append(range(start, min(n_members, start + size)))
        start, size = start + size, 2 * size
    return rungs


def _expected(running: list[_State], rungs: Sequence[Sequence[int]]) -> float:
    """The expected training time of all rungs, if the candidates in front are the better ones."""
    seconds = 0.0
    for members in rungs:
        seconds += sum(state.expected_seconds(members) for state in running)
        running = _kept(running)
    return seconds


def _kept(ranked: list[_State]) -> list[_State]:
    """The better half."""
    return ranked[: (len(ranked) + 1) // 2]


def _better_half(running: list[_State], full: list[_State], y: Int, weight: Float | None) -> list[_State]:
    """The candidates that make the best mixtures with those that were trained in full."""
    tried = [state for state in running if state.n_members]
    return _kept(sorted(tried, key=lambda state: _pool_of([*full, state], y, weight).loss))


class _Pool(NamedTuple):
    """Candidates with their weights, and the log loss of their pool on the rows that all of them predict."""

    states: list[_State]
    weights: Float
    loss: float


def _pool_of(states: Sequence[_State], y: Int, weight: Float | None) -> _Pool:
    """The best pool of those that have members; the best candidate alone if no pool is better."""
    states = [state for state in states if state.n_members]
    given = _common(states)
    y, row_weight = y[given], None if weight is None else weight[given]
    log_probs = [_logs(state.probs[given]) for state in states]
    alone = [mean_log_loss(np.exp(one), y, row_weight) for one in log_probs]
    best = int(np.argmin(alone))
    found = _Pool(states, np.eye(len(states))[best], alone[best])
    if len(states) > 1:
        weights = pool_weights(log_probs, y, row_weight)
        loss = mean_log_loss(pool(weights, log_probs), y, row_weight)
        if loss <= found.loss:
            found = _Pool(states, weights, loss)
    return found


def _logs(probs: Float) -> Float:
    logs: Float = np.log(probs.clip(np.finfo(np.float32).tiny))
    return logs


def _common(states: Sequence[_State]) -> NDArray[np.bool_]:
    """The rows that all candidates predict."""
    return np.logical_and.reduce([~np.isnan(state.probs[:, 0]) for state in states])


def _comparable(states: Sequence[_State]) -> list[_State]:
    """All candidates that have enough held-out rows in common, or else those with the most members."""
    for n_members in sorted({state.n_members for state in states} - {0}):
        chosen = [state for state in states if state.n_members >= n_members]
        if np.count_nonzero(_common(chosen)) >= ENOUGH_ROWS:
            break
    return chosen


def _pooled(states: list[_State], y: Int, weight: Float | None) -> Selection:
    best = _pool_of(_comparable(states), y, weight)
    for state, own in zip(best.states, best.weights, strict=True):
        state.weight = float(own)
    ranked = sorted(states, key=lambda state: (-state.weight, -state.n_members, state.loss))
    chosen = [state for state in ranked if state.weight]
    kinds = [
        EnsembleModule(state.members, temperatures=[state.temperature] * state.n_members) for state in chosen
    ]
    module = kinds[0] if len(kinds) == 1 else LogarithmicPool(kinds, [state.weight for state in chosen])
    return Selection(
        module.eval(),
        _out_of_fold(chosen),
        [state.record() for state in ranked],
        [state.trainer.candidate for state in ranked],
        chosen[0].result,
    )


def _out_of_fold(chosen: Sequence[_State]) -> Float:
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
