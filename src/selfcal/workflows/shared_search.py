"""A search whose trials any number of workers take from one study of Optuna, on one machine or several."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import Any

import numpy as np

from selfcal._support.checks import shorten
from selfcal._support.jobs import ATTEMPTS, completed_calls
from selfcal._support.parallel import Row
from selfcal._support.progress import progress_bar
from selfcal.errors import ConfigError
from selfcal.workflows._study_storage import check_installed, open_storage, storage_errors, without_password
from selfcal.workflows.comparison import Candidate, Task
from selfcal.workflows.search_space import Space, described

NAME = "selfcal tune"
"""The name of the study in its journal or database."""
BEAT_SECONDS = 10.0
"""Seconds between two signs of life of a running trial."""
STALE_SECONDS = 60.0
"""Seconds without one, after which a trial is taken for lost."""
POLL_SECONDS = 1.0
"""Seconds between two looks at the study while others run its last trials."""
DEATHS = 10
"""How many worker processes of one command may die."""
REDUCTION = 2
"""After 1, 2, 4, ... seeds a trial goes on if it is among the best one in so many that came so far."""


@dataclass(frozen=True)
class Trial:
    """A trial of the study.

    Attributes:
        number: Its number in the study.
        name: The settings.
        status: complete; pruned, after fewer seeds; failed, with an error; lost, with its worker; or running.
        rows: The results, by seed.
        worker: The machine and process that ran it.
        reason: The error of a trial that failed.
    """

    number: int
    name: str
    status: str
    rows: Sequence[Row]
    worker: str
    reason: str | None = None


@dataclass(frozen=True)
class SharedSearch:
    """A search that is divided among all processes that are given the same study.

    Settings come from a fixed list, so that no two workers propose the same one. A worker creates a trial for the
    first that is free; if two do so at once, the trial with the lower number counts, and the other takes the next.

    Attributes:
        task: The table.
        candidates: The settings; other workers may have more or fewer of the same list.
        space: What they were drawn from.
        seeds: Number of seeds of each trial.
        place: A journal file on a disk that all workers share, or the URL of a database.
    """

    task: Task
    candidates: Sequence[Candidate]
    space: Space
    seeds: int
    place: str
    session: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        check_installed()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the study belongs to."""
        space = "; ".join(f"{name} from {values}" for name, values in described(self.space).items())
        every = {**self.task.identity(), "space": space, "seeds": self.seeds}
        found: dict[str, Any] = json.loads(json.dumps(every))
        return found

    def run(self, *, jobs: int, progress: bool | None = None) -> list[Trial]:
        """Run trials in `jobs` processes until every setting has one that finished, here or elsewhere."""
        with storage_errors(self.place):
            study = _Study.opened(self)
            jobs = max(1, min(jobs, len(study.free()) or 1))
            calls = completed_calls(partial(_work, self), [()] * jobs, n_jobs=jobs, attempts=DEATHS)
            try:
                with (
                    progress_bar("Tuning", len(self.candidates), progress) as advance,
                    _showing(study, advance),
                    closing(calls),
                ):
                    for _ in calls:
                        pass
            finally:
                study.give_back()
            return study.trials()


@dataclass
class _Study:
    """The study, as one process sees it."""

    search: SharedSearch
    storage: Any
    study: Any
    seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def opened(cls, search: SharedSearch) -> _Study:
        """Open the study or create it, after a check that it is one of the same search."""
        storage = open_storage(search.place)
        import optuna

        study = optuna.create_study(
            storage=storage,
            study_name=NAME,
            load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(),  # never asked
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION),
        )
        if "identity" not in study.user_attrs:
            study.set_user_attr("identity", search.identity)
        _check_same(search, study.user_attrs["identity"])
        return cls(search, storage, study)

    def by_setting(self) -> dict[str, list[Any]]:
        """All trials of each setting, in the order of their numbers."""
        found: dict[str, list[Any]] = {one.name: [] for one in self.search.candidates}
        for trial in self.study.get_trials(deepcopy=False):
            name = trial.user_attrs.get("setting")
            if name in found and not trial.user_attrs.get("given back"):
                found[name].append(trial)
        return found

    def free(self) -> list[Candidate]:
        """The settings that no trial stands for, unless workers died of them again and again."""
        trials = self.by_setting()
        return [
            one
            for one in self.search.candidates
            if not any(map(_stands, trials[one.name])) and len(trials[one.name]) < ATTEMPTS
        ]

    def taken(self, candidate: Candidate) -> int | None:
        """A new trial for these settings, or None if another worker was first."""
        from optuna.trial import TrialState, create_trial

        attributes = {
            "setting": candidate.name,
            "worker": f"{platform.node()}, process {os.getpid()}",
            "session": self.search.session,
        }
        new = create_trial(state=TrialState.RUNNING, user_attrs=attributes)
        number: int = self.storage.create_new_trial(self.study._study_id, new)
        first = next(trial for trial in self.by_setting()[candidate.name] if _stands(trial))
        if first._trial_id == number:
            return number
        self._return(number)
        return None

    def give_back(self) -> None:
        """Leave the trials that this command runs to others."""
        for trial in self.running():
            if trial.user_attrs["session"] == self.search.session:
                self._return(trial._trial_id)

    def running(self) -> list[Any]:
        """The trials that are being run."""
        return [one for trials in self.by_setting().values() for one in trials if not one.state.is_finished()]

    def fail_stale(self) -> None:
        """Fail trials whose sign of life has not changed for a while, by the clock of this process."""
        from optuna.trial import TrialState

        now = time.monotonic()
        for trial in self.running():
            beat = trial.user_attrs.get("beat", 0)
            if self.seen.get(trial._trial_id, (None,))[0] != beat:
                self.seen[trial._trial_id] = (beat, now)
            elif now - self.seen[trial._trial_id][1] > STALE_SECONDS:
                with _finished_elsewhere():
                    self.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)

    def run(self, number: int, candidate: Candidate) -> None:
        """Train with each seed, unless the first ones show that others are better."""
        import optuna
        from optuna.trial import TrialState

        trial = optuna.trial.Trial(self.study, number)
        rows: list[Row] = []
        state, value = TrialState.COMPLETE, None
        with _finished_elsewhere(), _beating(self.storage, number):
            for seed in range(self.search.seeds):
                rows.append(self.search.task.run(candidate, seed))
                self.storage.set_trial_user_attr(number, "rows", rows)
                if rows[-1]["failed"] is not None:
                    self.storage.set_trial_user_attr(number, "failed", rows[-1]["failed"])
                    state, value = TrialState.FAIL, None
                    break
                value = float(np.mean([row["log_loss"] for row in rows]))
                trial.report(value, seed + 1)
                if seed + 1 < self.search.seeds and trial.should_prune():
                    state = TrialState.PRUNED
                    break
            self.storage.set_trial_state_values(number, state, None if value is None else [value])

    def trials(self) -> list[Trial]:
        """All trials of the settings, in the order of the settings."""
        return [_plain(one) for trials in self.by_setting().values() for one in trials]

    def _return(self, number: int) -> None:
        from optuna.trial import TrialState

        with _finished_elsewhere():
            self.storage.set_trial_user_attr(number, "given back", True)
            self.storage.set_trial_state_values(number, TrialState.FAIL)


def _work(search: SharedSearch) -> None:
    """Take free settings, one after the other, until all trials are finished."""
    with storage_errors(search.place):
        study = _Study.opened(search)
        while True:
            study.fail_stale()
            free = study.free()
            if free:
                number = study.taken(free[0])
                if number is not None:
                    study.run(number, free[0])
            elif study.running():
                time.sleep(POLL_SECONDS)
            else:
                return


def _stands(trial: Any) -> bool:
    """Whether a trial runs or has a result, which may be an error."""
    return trial.state.name != "FAIL" or "failed" in trial.user_attrs


def _plain(trial: Any) -> Trial:
    status = {"FAIL": "failed" if _stands(trial) else "lost"}.get(trial.state.name, trial.state.name.lower())
    known = trial.user_attrs
    return Trial(
        trial.number, known["setting"], status, known.get("rows", ()), known["worker"], known.get("failed")
    )


def _check_same(search: SharedSearch, kept: Mapping[str, Any]) -> None:
    asked = search.identity
    differing = [
        f"{name} {shorten(repr(kept.get(name)), 120)} instead of {shorten(repr(asked.get(name)), 120)}"
        if name != "data"
        else "another table"
        for name in dict.fromkeys([*asked, *kept])
        if kept.get(name) != asked.get(name)
    ]
    if differing:
        raise ConfigError(
            f"--study must name a new study or one of the same search; {without_password(search.place)} is for "
            f"{', '.join(differing)}. Use the table and options of its other workers, or choose another --study."
        )


@contextmanager
def _finished_elsewhere() -> Iterator[None]:
    """A context that ends where a trial turns out to be finished already, as when this process was taken for dead."""
    from optuna.exceptions import UpdateFinishedTrialError

    with suppress(UpdateFinishedTrialError):
        yield


@contextmanager
def _repeated(call: Callable[[int], object], seconds: float) -> Iterator[None]:
    """A context in which a thread makes a call again and again, with 1, 2, 3, ..."""
    ended = threading.Event()

    def repeat() -> None:
        for number in count(1):
            if ended.wait(seconds):
                return
            with suppress(Exception):  # a storage that is away for a moment, or a trial that is finished
                call(number)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _beating(storage: Any, number: int) -> Any:
    """A context in which a trial gives signs of life."""
    return _repeated(partial(storage.set_trial_user_attr, number, "beat"), BEAT_SECONDS)


def _showing(study: _Study, advance: Callable[[float, str], object]) -> Any:
    """A context in which the progress of all workers is shown."""

    def show(_: int) -> None:
        trials = study.by_setting().values()
        done = sum(any(_stands(one) and one.state.is_finished() for one in each) for each in trials)
        advance(done, f"{done} of {len(trials)} done")

    return _repeated(show, POLL_SECONDS)
