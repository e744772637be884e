"""Successive halving over candidates by their held-out predictions, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from joblib import effective_n_jobs

from selfcal._support.checks import Float, Int
from selfcal._support.jobs import run_calls
from selfcal.ensembles.pooling import Selection, State, Trainer, best_pool, ranked, selected
from selfcal.ensembles.training import TrainedMembers

QUICK, FIRST = 1 / 8, 1 / 3
"""Candidates that need no more than this part of the time are trained in full before the others; the second number is
that of the first candidate."""

MAX_TIME_RATIO = 3
"""A candidate may take this many times its part of the time left, or what is left if all others take as many times
what they are expected to: few are cut short, all are trained."""


def select(
    trainers: Sequence[Trainer],
    n_members: int,
    y: Int,
    weight: Float | None = None,
    *,
    rounds: int = 1,
    budget: float = float("inf"),
    n_jobs: int | None = None,
) -> Selection:
    """Train candidates, by successive halving if time is short, and pool their predictions.

    If the first round of all candidates can be expected to end in time, all are trained. Otherwise those that take a
    small part of the time are, and the first one if it can; each of the others trains one member, the better half
    more, and so on.
    Better are those whose pool with what was trained in full is better. No candidate takes the time that the others
    need. Further rounds train all that there is time for, the candidates of the largest weight in the pool first.
    Which candidates continue depends on estimates known beforehand and on the data, not on the clock, so that the
    result is reproducible unless the budget cuts it short. On the held-out rows the pool is never worse than any
    candidate alone.

    Args:
        trainers: One for each candidate, the most useful first: if time runs out, the last ones are not trained. At
            least one member of the first is, whatever the budget.
        n_members: Number of members of a fully trained candidate.
        y: The label codes of all rows.
        weight: Their sample weights.
        rounds: Number of rounds that the members of a candidate are trained in.
        budget: The time budget, in seconds.
        n_jobs: Number of candidates that are trained at the same time, in processes of their own. The result is the
            same if there is time for all of them; otherwise more processes train more.
    """
    first, *further = (range(n_members)[part] for part in _slices(n_members, rounds))
    states = [State(trainer, n_members) for trainer in trainers]
    work = _Work(y, weight, budget, n_jobs)
    enough = work.has_time_for(states, first)
    quick, slow = list[State](), list[State]()
    for place, state in enumerate(states):
        part = QUICK if place else FIRST
        (quick if enough or work.is_quick(state, first, part) else slow).append(state)
    rungs = _rungs(first) if slow else []
    work.train(quick, first, later=0.0)
    for place, members in enumerate(rungs):
        work.train(slow, members, later=_expected(_kept(slow), rungs[place + 1 :]))
        slow = _better_half(slow, quick, y, weight)
    for members in further:
        again = work.affordable(ranked(states, y, weight, min_members=members[0]), members)
        work.train(again, members, later=0.0)
    return selected(states, y, weight)


class _Work:
    """Trains members within a time budget."""

    def __init__(self, y: Int, weight: Float | None, budget: float, n_jobs: int | None) -> None:
        self._y, self._weight, self._n_jobs = y, weight, n_jobs
        self._deadline = time.time() + budget
        self._workers = effective_n_jobs(n_jobs)
        self._budget = budget * self._workers
        self._expected = 0.0
        self._started = False

    def has_time_for(self, states: Sequence[State], members: Sequence[int]) -> bool:
        """Whether these members of the candidates can be expected to end in time, after what was trained before."""
        return self._expected + sum(state.expected_seconds(members) for state in states) <= self._budget

    def affordable(self, states: Sequence[State], members: Sequence[int]) -> list[State]:
        """Those whose members can be expected to end in time, all together; the first ones come first."""
        chosen: list[State] = []
        for state in states:
            if self.has_time_for([*chosen, state], members):
                chosen.append(state)
        return chosen

    def is_quick(self, state: State, members: Sequence[int], part: float) -> bool:
        """Whether training these members takes no more than a part of the time."""
        return state.expected_seconds(members) <= part * self._budget

    def train(self, states: Sequence[State], members: Sequence[int], *, later: float) -> None:
        """Train some members of each candidate; what is planned for later takes part in sharing the time left."""
        left = max(0.0, self._deadline - time.time()) * self._workers
        costs = {id(state): state.expected_seconds(members) for state in states}
        planned = later + sum(costs.values())
        self._expected += sum(costs.values())

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


def _slices(n_members: int, rounds: int) -> list[slice]:
    """Equal parts of the members."""
    size = n_members // rounds
    return [slice(start, start + size) for start in range(0, n_members, size)]


def _rungs(members: Sequence[int]) -> list[Sequence[int]]:
    """The members to train at each rung: the first one, then twice as many each time."""
    rungs, start, size = [], 0, 1
    while start < len(members):
        rungs.append(members[start : start + size])
        start, size = start + size, 2 * size
    return rungs


def _expected(running: list[State], rungs: Sequence[Sequence[int]]) -> float:
    """The expected training time of all rungs, if the candidates in front are the better ones."""
    seconds = 0.0
    for members in rungs:
        seconds += sum(state.expected_seconds(members) for state in running)
        running = _kept(running)
    return seconds


def _kept(ranked: list[State]) -> list[State]:
    """The better half."""
    return ranked[: (len(ranked) + 1) // 2]


def _better_half(running: list[State], full: list[State], y: Int, weight: Float | None) -> list[State]:
    """The candidates that make the best mixtures with those that were trained in full."""
    tried = [state for state in running if state.n_members]
    return _kept(sorted(tried, key=lambda state: best_pool([*full, state], y, weight).loss))
