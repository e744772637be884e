"""The state of a training run between two steps."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selfcal.errors import ConfigError, TrainingError
from selfcal.training.batches import Batches, Endless, halved, random_states, set_random_states
from selfcal.training.distributed import of_each, rank
from selfcal.training.history import Recorder
from selfcal.training.step import BilevelStep, DivergenceError, StepReport
from selfcal.training.types import OuterParams

MAX_ROLLBACKS = 3
RUNNING, STOPPED_EARLY, OUT_OF_TIME, RAN_TO_THE_END, STOPPED_BY_CALLBACK = (
    "running",
    "stopped early",
    "out of time",
    "ran to the end",
    "stopped by the callback",
)


class Run:
    """A training run. Checkpoints and roll-backs use `state` and `load_state`.

    Args:
        step: Takes the steps.
        train_data: The rows of the inner level.
        outer_data: The rows of the outer level, if there is one.
        selection_data: The rows that the best state is selected on, if there are any.

    Attributes:
        selection: The selection data, in batches that fit into memory.
    """

    def __init__(
        self,
        step: BilevelStep,
        train_data: Batches,
        outer_data: Batches | None,
        selection_data: Batches | None,
    ) -> None:
        self.step = step
        self.selection = selection_data
        self.best = None if selection_data is None else BestState(step)
        self.recorder = Recorder()
        self.recorder.snapshot(0, step.outer_params)
        self.status = RUNNING
        self._data = [data for data in (train_data, outer_data) if data is not None]
        self._selection = selection_data
        self._streams = [Endless(data) for data in self._data]
        self._optimizer = step.optimizer
        self._earlier = 0.0
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The time it has taken, including earlier processes of the same run."""
        return self._earlier + time.perf_counter() - self._started

    @property
    def can_be_saved(self) -> bool:
        """Whether `state` is complete: inner steps recorded for the next outer step are not part of it."""
        return not self.step.in_flight

    def advance(self) -> StepReport:
        """Take the next step and record it."""
        step, recorder = self.step, self.recorder
        train_batch = next(self._streams[0])
        report = step(train_batch, next(self._streams[1]) if step.outer_due else None)
        recorder.inner_loss.append(report.inner_loss)
        if report.outer_loss is not None:
            recorder.outer.append((step.count, report.outer_loss))
            recorder.skipped += report.skipped
            recorder.snapshot(step.count, step.outer_params)
        return report

    def evaluated(
        self, losses: list[float] | None, *, patience: int | None, last: bool, regular: bool
    ) -> float | None:
        """Record the selection loss of each network, and update the status; returns the mean loss.

        An evaluation that is not `regular` takes place only because the run ends: a longer run would not have it.
        """
        loss = None if losses is None else sum(losses) / len(losses)
        if self.best is not None and loss is not None:
            self.recorder.selection.append((self.step.count, loss))
            self.best.consider(self.step, loss)
            if patience is not None and self.best.rounds_without_gain >= patience:
                self.status = STOPPED_EARLY
        if last and (self.status == RUNNING or not regular):
            self.status = RAN_TO_THE_END
        if regular:
            self.mark_good()
        return loss

    def stopped(self) -> None:
        """Stop because the callback asks for it, unless training has already ended."""
        if self.status == RUNNING:
            self.status = STOPPED_BY_CALLBACK

    def extend(self, max_steps: int) -> None:
        """Continue a run that ran to the end, if it may now take more steps.

        It continues from the last regular evaluation, so that the result is that of one long run.
        """
        if self.step.count > max_steps:
            raise ConfigError(
                f"max_steps must be at least the {self.step.count} steps that the run in the checkpoint has taken; "
                f"got {max_steps}. Raise it, or use another folder."
            )
        if self.status == RAN_TO_THE_END and self.step.count < max_steps:
            self._return_to_good()
            self.status = RUNNING

    def out_of_time(self) -> None:
        """Stop for lack of time, unless training has already ended."""
        if self.status == RUNNING:
            self.status = OUT_OF_TIME

    def mark_good(self) -> None:
        """Make this the state to return to after a failure."""
        if self.can_be_saved:
            self._good = self._position()

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """A context in which a step that fails makes training return to the last good state.

        It continues with half the step size if the loss or the parameters are no longer finite, `MAX_ROLLBACKS`
        times at most, and with batches of half the size if memory runs out.
        """
        try:
            yield
        except DivergenceError as failure:
            rollbacks = len(self.recorder.rollbacks)
            if rollbacks == MAX_ROLLBACKS or self._optimizer.slowed(0.5) is None:
                before = f" Training was rolled back {rollbacks} times before, each time with half the learning rate."
                raise TrainingError(f"{failure}{before if rollbacks else ''}") from failure
            self._roll_back(self.recorder.rollbacks)
        except (MemoryError, RuntimeError) as failure:
            if not _out_of_memory(failure):
                raise
            if not self._can_be_reduced():
                raise TrainingError(
                    f"Memory ran out after {self.step.count} steps with batches of {self._batch_rows} rows, which "
                    f"cannot be made smaller ({_first_line(failure)}). Use a smaller network or fewer columns."
                ) from failure
            traceback.clear_frames(failure.__traceback__)  # they still hold what filled the memory
            self._roll_back(self.recorder.reductions)

    def recoveries(self) -> list[str]:
        """A message about each kind of failure that training recovered from."""
        messages, recorder = [], self.recorder
        if recorder.rollbacks:
            messages.append(
                f"The loss or the parameters were not finite at step {recorder.rollbacks}: training was rolled back "
                "to the last good state and continued with half the learning rate, at the end with "
                f"{self.step.optimizer}."
            )
        if recorder.reductions:
            messages.append(
                f"Batch reduced: memory ran out after step {recorder.reductions}; training was rolled back to the "
                f"last good state and continued with batches of half the size, at the end of {self._batch_rows} "
                "rows. With more memory the result would differ."
            )
        return messages

    def state(self) -> dict[str, Any]:
        """The whole run as tensors and plain values, by name."""
        is_good = self._good["step"]["count"] == self.step.count
        return {
            "now": self._good if is_good else self._position(),
            "good": self._good,
            "history": self.recorder.state(),
            "status": self.status,
            "seconds": self.seconds,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self._good = state["good"]
        self.recorder.load_state(state["history"])
        self.status = state["status"]
        self._earlier, self._started = state["seconds"], time.perf_counter()
        self._reduce()
        self._restore(state["now"])

    def _roll_back(self, failures: list[int]) -> None:
        failures.append(self.step.count)
        self._return_to_good()

    def _return_to_good(self) -> None:
        self._reduce()
        self._restore(self._good)
        self.recorder.forget_after(self.step.count, self.step.outer_params)

    def _reduce(self) -> None:
        """Halve the step size and the batches once for each failure so far."""
        if self.recorder.rollbacks:
            slowed = self._optimizer.slowed(0.5 ** len(self.recorder.rollbacks))
            self.step.optimizer = slowed or self._optimizer
        times = len(self.recorder.reductions)
        for stream, data in zip(self._streams, self._data, strict=True):
            stream.batches = halved(data, times)
        self.selection = None if self._selection is None else halved(self._selection, times)

    def _can_be_reduced(self) -> bool:
        times = len(self.recorder.reductions)
        data = [*self._data, *([] if self._selection is None else [self._selection])]
        return any(len(halved(of, times + 1)) > len(halved(of, times)) for of in data)

    @property
    def _batch_rows(self) -> int:
        train = self._streams[0].batches
        return -(-train.n_rows // len(train))

    def _position(self) -> dict[str, Any]:
        return {
            "step": self.step.state(),
            "streams": [stream.state() for stream in self._streams],
            "best": None if self.best is None else self.best.state(),
            "random": [of_each(part) for part in self.step.random.state()],
            "selection": [] if self.selection is None else random_states(self.selection),
        }

    def _restore(self, position: dict[str, Any]) -> None:
        self.step.load_state(position["step"])
        if self.best is not None:
            self.best.load_state(position["best"], self.step.device)
        for stream, place in zip(self._streams, position["streams"], strict=True):
            stream.load_state(place)
        if self.selection is not None:
            set_random_states(self.selection, position["selection"])
        streams = position["random"]
        if rank() < len(streams[0]):  # else it was saved by fewer processes
            own = tuple(part[rank()].clone() for part in streams)  # torch crashes on a view
            self.step.random.load_state(own)  # last: a loader may draw when it starts


def _out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; on the CPU, torch raises a RuntimeError for it."""
    message = str(error)
    return (
        isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError))
        or "DefaultCPUAllocator" in message
        or "out of memory" in message
    )


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


class BestState:
    """The state with the lowest selection loss so far.

    Networks that are trained side by side are kept at the same step, that of their lowest mean loss: a step chosen
    for each network would make its predictions for the selection rows look better than they are.
    """

    def __init__(self, step: BilevelStep) -> None:
        self._loss = float("inf")
        self._waited = 0
        self._kept = self._now(step)

    @property
    def rounds_without_gain(self) -> int:
        """The number of evaluations since the loss last improved."""
        return self._waited

    def consider(self, step: BilevelStep, loss: float) -> None:
        """Keep the state if the loss has improved."""
        self._waited += 1
        if loss < self._loss:
            self._loss, self._waited, self._kept = loss, 0, self._now(step)

    def restore(self, step: BilevelStep) -> tuple[OuterParams, int]:
        """Set the network to the kept state; returns the outer parameters and the step of that state."""
        if not math.isfinite(self._loss):
            raise TrainingError(
                f"The log loss on the selection data was never finite in {step.count} steps. Lower the learning "
                "rate, or look for extreme values in the selection data."
            )
        step.problem.write(self._kept.theta)
        step.problem.keep(self._kept.buffers)
        return self._kept.outer, self._kept.step

    def state(self) -> dict[str, Any]:
        """The best state by name; not copied, as it never changes."""
        return {"loss": self._loss, "waited": self._waited, "kept": self._kept._asdict()}

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from a `state`."""
        self._loss, self._waited = state["loss"], state["waited"]
        self._kept = _Kept(**state["kept"]).to(device)

    @staticmethod
    def _now(step: BilevelStep) -> _Kept:
        kept = [value.clone() for value in step.problem.kept()]
        return _Kept(step.problem.read(), kept, step.outer_params, step.count)


class _Kept(NamedTuple):
    """The state after a step."""

    theta: Tensor
    buffers: list[Tensor]
    outer: OuterParams
    step: int

    def to(self, device: torch.device) -> _Kept:
        """The same on a device."""
        outer = {name: value.to(device) for name, value in self.outer.items()}
        return _Kept(self.theta.to(device), [value.to(device) for value in self.buffers], outer, self.step)
