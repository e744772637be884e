"""Successive halving over candidates by their held-out predictions, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from joblib import effective_n_jobs

from selfcal._support.checks import Float, Int
from selfcal._support.jobs import run_calls
from selfcal._support.progress import Advance, unseen
from selfcal.ensembles.pooling import Selection, State, Trainer, best_pool, ranked, selected
from selfcal.ensembles.training import TrainedMembers
from selfcal.training.run import OUT_OF_TIME

SAFE, QUICK = 1 / 2, 1 / 4
"""Candidates are trained in full before the others if they can be expected to take no more than the first part of the
time together, and the second each. A machine that is half as fast as expected, or busy, then trains the same."""
SLACK = 2
"""How many times as long as expected training may take: more than that, a candidate takes only its part of the time
left, or what is left if all others take so many times what they are expected to."""


def select(
    trainers: Sequence[Trainer],
    n_members: int,
    y: Int,
    weight: Float | None = None,
    *,
    rounds: int = 1,
    budget: float = float("inf"),
    deadline: float | None = None,
    n_jobs: int | None = None,
    advance: Advance = unseen,
) -> Selection:
    """Train candidates, by successive halving if time is short, and pool their predictions.

    If the first round of all candidates can be expected to end well in time, all are trained. Otherwise the first
    ones are that do; each of the others trains one member, those with a part in the pool train more, or their better
    half if there is no time for all of them, and so on. No candidate takes the time that the others need. Further
    rounds train all that there is time for, the candidates of the largest weight in the pool first; what does not end
    in time there is not used.

    Which candidates continue depends on estimates known beforehand and on the data, not on the clock, so that the
    result is reproducible unless the budget cuts it short. On the held-out rows the pool is never worse than any
    candidate alone.

    Args:
        trainers: One for each candidate, the most useful first: if time is short, the last ones are not trained. At
            least one member of the first is, whatever the budget.
        n_members: Number of members of a fully trained candidate.
        y: The label codes of all rows.
        weight: Their sample weights.
        rounds: Number of rounds that the members of a candidate are trained in.
        budget: The time budget, in seconds, by which it is planned what to train.
        deadline: When training ends, in seconds since the epoch; by default after the time budget.
        n_jobs: Number of candidates that are trained at the same time, in processes of their own. The result is the
            same if there is time for all of them; otherwise more processes train more.
        advance: Is told the expected seconds of what has been trained, and what is trained next.
    """
    first, *further = (range(n_members)[part] for part in _slices(n_members, rounds))
    states = [State(trainer, n_members) for trainer in trainers]
    deadline = time.time() + budget if deadline is None else deadline
    work = _Work(states, y, weight, budget=budget, deadline=deadline, n_jobs=n_jobs, advance=advance)
    enough = work.has_time_for(states, first, SAFE)
    quick: list[State] = []
    for state in states:
        fits = work.has_time_for([*quick, state], first, SAFE) and work.has_time_for([state], first, QUICK)
        if enough or fits:
            quick.append(state)
    slow = [state for state in states if state not in quick]
    rungs = _rungs(first) if slow else []
    if enough:
        quick = _longest_first(quick, first)
    work.train(quick, first, later=_expected(slow, rungs), guaranteed=SLACK)
    for place, members in enumerate(rungs):
        work.train(slow, members, later=_expected(_kept(slow), rungs[place + 1 :]))
        slow = _useful(slow, quick, y, weight)
        if not work.has_time_for(slow, first[members[-1] + 1 :]):
            slow = _kept(slow)
    for members in further:
        work.train_in_time(ranked(states, y, weight, min_members=members[0]), members)
    return selected(states, y, weight)


class _Call(NamedTuple):
    """A candidate whose members are to be trained, how long that is expected to take, and may take."""

    state: State
    expected_seconds: float
    max_seconds: float


class _Work:
    """Trains members within a time budget."""

    def __init__(
        self,
        states: Sequence[State],
        y: Int,
        weight: Float | None,
        *,
        budget: float,
        deadline: float,
        n_jobs: int | None,
        advance: Advance,
    ) -> None:
        self._states, self._advance = states, advance
        self._y, self._weight, self._n_jobs = y, weight, n_jobs
        self._begin = time.time()
        self._deadline = deadline
        self._workers = effective_n_jobs(n_jobs)
        self._budget = budget * self._workers
        self._expected = self._ended = 0.0
        self._started = False

    def has_time_for(self, states: Sequence[State], members: Sequence[int], part: float = 1.0) -> bool:
        """Whether these members can be expected to end within a part of the time, after what was trained before."""
        return (
            self._expected + sum(state.expected_seconds(members) for state in states) <= part * self._budget
        )

    def train(
        self, states: Sequence[State], members: Sequence[int], *, later: float, guaranteed: float = 0.0
    ) -> None:
        """Train some members of each candidate.

        Args:
            states: The candidates.
            members: The numbers of the members.
            later: The expected time of what is planned for later, which takes part in sharing the time left.
            guaranteed: How many times as long as expected each may take in any case.
        """
        costs = [state.expected_seconds(members) for state in states]
        self._expected += sum(costs)

        def calls() -> Iterator[_Call]:
            for place, (state, cost) in enumerate(zip(states, costs, strict=True)):
                left = self._left() * self._workers  # when its turn comes
                others = later + sum(costs[place + 1 :])
                part = cost / (cost + others) if cost > 0 else 1.0
                yield _Call(state, cost, max(guaranteed * cost, part * left, left - SLACK * others))

        for call, trained, seconds in self._outcomes(calls(), members):
            call.state.add(trained, seconds, self._y, self._weight)

    def train_in_time(self, states: Sequence[State], members: Sequence[int]) -> None:
        """Train members of those candidates that can be expected to end in time, and use those that do."""
        if self.has_time_for(states, members, SAFE):
            states = _longest_first(states, members)

        def calls() -> Iterator[_Call]:
            for state in states:
                cost, left = state.expected_seconds(members), self._left()
                if not self.has_time_for([state], members):
                    continue
                if cost * self._pace > left:
                    state.out_of_time = True
                    continue
                self._expected += cost
                yield _Call(state, cost, left)

        for call, trained, seconds in self._outcomes(calls(), members):
            if trained.result.status == OUT_OF_TIME:
                call.state.out_of_time = True
            else:
                call.state.add(trained, seconds, self._y, self._weight)

    def _outcomes(
        self, calls: Iterator[_Call], members: Sequence[int]
    ) -> Iterator[tuple[_Call, TrainedMembers, float]]:
        """Train, and measure how long it takes, with what an earlier process has taken that this one resumes."""
        called: list[_Call] = []

        def arguments() -> Iterator[tuple[Any, ...]]:
            for call in calls:
                called.append(call)
                first, self._started = not self._started, True
                self._advance(self._ended, self._named(call.state, members), call.expected_seconds)
                yield call.state.trainer, members, self._deadline, call.max_seconds, first

        for place, outcome in enumerate(run_calls(_train, arguments(), n_jobs=self._n_jobs)):
            self._ended += called[place].expected_seconds
            if outcome is not None:
                trained, seconds = outcome
                before = max(0.0, trained.result.seconds - seconds)
                self._begin -= before / self._workers
                self._deadline -= before / self._workers
                yield called[place], trained, seconds + before

    def _named(self, state: State, members: Sequence[int]) -> str:
        """Which members of which candidate these are."""
        name, several = state.trainer.candidate.name, len(self._states) > 1
        of = f" ({self._states.index(state) + 1} of {len(self._states)})" if several else ""
        first, last = members[0] + 1, members[-1] + 1
        which = f"member {first}" if first == last else f"members {first}-{last}"
        return f"{name}{of}, {which}/{state.planned}"

    def _left(self) -> float:
        return max(0.0, self._deadline - time.time())

    @property
    def _pace(self) -> float:
        """How many times as long as expected training takes, but not less than one."""
        taken = (time.time() - self._begin) * self._workers
        return max(1.0, taken / self._ended) if self._ended > 0 else 1.0


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
        A larger one trains all of them in full.")
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
    speed = "; the result depends on the speed of this machine" if clocked else ""
    return (
        f"The time budget of {budget:g} s left out a part of the training: {', '.join(cuts)}{speed}. "
        "A larger one trains all of them in full."
    )


def _slices(n_members: int, rounds: int) -> list[slice]:
    """Equal parts of the members."""
    size = n_members // rounds
    return [slice(start, start + size) for start in range(0, n_members, size)]


def _longest_first(states: Sequence[State], members: Sequence[int]) -> list[State]:
    """In the order that keeps several processes busy until the end."""
    return sorted(states, key=lambda state: -state.expected_seconds(members))


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


def _useful(running: list[State], full: list[State], y: Int, weight: Float | None) -> list[State]:
    """The candidates with a part in the best pool of all and those trained in full, the largest part first."""
    found = best_pool([*full, *running], y, weight)
    parts = [(state, own) for state, own in zip(found.states, found.weights, strict=True) if state in running]
    return [state for state, own in sorted(parts, key=lambda pair: -pair[1]) if own > 0]
