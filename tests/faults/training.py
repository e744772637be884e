"""A training run or a command to injure: in this process, or in a child that may be killed.

Run as a script it is a nursery: it loads torch once and forks a child for every case it is given, so that fifty real
processes can die in the time it takes to load torch ten times. It has no home folder, no terminal and no colours, and
may not open a socket.
"""

import contextlib
import hashlib
import importlib
import itertools
import json
import os
import pkgutil
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from selfcal import recipes, train
from selfcal.ensembles import Ensemble
from selfcal.ensembles.training import Rows, train_members
from selfcal.errors import SelfcalError
from selfcal.optimizers import Adam
from selfcal.training import checkpoint, engine, step

STEPS = 60


def data():
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + x[:, 1] ** 2 > 0.5).long()
    return [(x[rows], y[rows]) for rows in (slice(0, 120), slice(120, 160), slice(160, 200))]


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def wide():
    """A network and rows that need much memory."""
    x = torch.zeros(6_000, 10)
    return nn.Sequential(nn.Linear(10, 4000), nn.ReLU(), nn.Linear(4000, 2)), [(x, x[:, 0].long())]


def run(recipe, folder=None, **settings):
    """Train with a mask, running statistics, shuffled batches and early stopping: all that a state consists of."""
    if isinstance(recipe, str):
        recipe = recipes.named(recipe)
    options = {"max_steps": STEPS, "batch_size": 32, "evaluate_every": 6, "patience": None, **settings}
    options = {"checkpoint": folder, "checkpoint_seconds": 0, "optimizer": Adam(lr=0.02), **options}
    if options.pop("wide", False):
        module, parts = wide()
        return train(module, *parts, recipe=recipe, **options | {"batch_size": None})
    if options.pop("shuffled", False):
        parts = [DataLoader(TensorDataset(*part), batch_size=32, shuffle=True) for part in data()]
        return train(network(), *parts, recipe=recipe, **options)
    if isinstance(recipe, Ensemble):
        return ensemble_run(recipe, **options)
    return train(options.pop("module", None) or network(), *data(), recipe=recipe, **options)


def ensemble_run(ensemble, max_steps, batch_size, **options):
    """The same for several networks in one loop."""
    x, y = (torch.cat(parts) for parts in zip(*data(), strict=True))
    splits = ensemble.splitter.splits(y.numpy(), seed=0)
    epochs = max_steps // -(-max(len(split.train) for split in splits) // batch_size)
    rows, members = Rows(x, y.numpy(), None), [network() for _ in splits]
    recipe = ensemble.candidates[0].recipe
    return train_members(
        members,
        splits,
        rows,
        recipe=recipe,
        max_epochs=epochs,
        batch_size=batch_size,
        **options,
    ).result


def digest(result):
    """SHA-256 of all that training is for: network, outer parameters, calibrated probabilities, history."""
    history = vars(result.history)
    parts = [*result.module.state_dict().values(), *result.outer_params.values()]
    found = hashlib.sha256(
        f"{result.n_steps} {result.best_step} {result.status} {history['skipped']}".encode()
    )
    arrays = [part.numpy() for part in parts] + list(history["snapshots"].values())
    arrays += [value for name, value in history.items() if name not in ("snapshots", "skipped")]
    if result.calibrator is not None:
        arrays.append(result.calibrator.predict_proba(data()[0][0][:, :2].numpy()))
    for array in arrays:
        found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function, number, *, after=False, first=lambda *arguments: None):
    """The same function, which kills the process in its call of that number."""
    calls = 0

    def wrapped(*arguments, **keywords):
        nonlocal calls
        calls += 1
        if calls < number:
            return function(*arguments, **keywords)
        first(*arguments)
        if after:
            function(*arguments, **keywords)
        die()
        return None

    return wrapped


def halve(descriptor):
    """Leave only half of a file that was to be synced to the disk."""
    with contextlib.suppress(OSError):  # a folder
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)


def plant(point, number):
    """Arm one of the places where a kill hurts most."""
    if point == "in a step":
        step.BilevelStep._outer_step = dying(step.BilevelStep._outer_step, number)
        step.BilevelStep._inner_step = dying(step.BilevelStep._inner_step, 5 * number, after=True)
    elif point == "half written":
        os.fsync = dying(os.fsync, number, first=halve)
    elif point == "not synced":
        os.fsync = dying(os.fsync, number)
    elif point == "before the rename":
        os.replace = dying(os.replace, number)
    elif point == "after the rename":
        os.replace = dying(os.replace, number, after=True)
    elif point == "before the old one goes":
        Path.unlink = dying(Path.unlink, number)
    elif point == "before a folder moves":
        os.rename = dying(os.rename, number)
    elif point == "after a folder moved":
        os.rename = dying(os.rename, number, after=True)


POINTS = (
    "in a step",
    "half written",
    "not synced",
    "before the rename",
    "after the rename",
    "before the old one goes",
)


def restless_clock():
    """A wall clock that jumps by a day, back and forth, whenever somebody looks."""
    now, jumps = time.time, itertools.cycle([0, 86_400, -86_400])
    time.time = lambda: now() + next(jumps)


def strike(number, count):
    """Send this process a signal in the middle of its inner step of that count."""
    inner_step, steps = step.BilevelStep._inner_step, itertools.count(1)

    def struck(self, batch):
        if next(steps) == count:
            os.kill(os.getpid(), number)
        return inner_step(self, batch)

    step.BilevelStep._inner_step = struck


PLACES = {
    "reading": ("selfcal.tabular.io", "read_table"),
    "training": ("selfcal.training.step:BilevelStep", "_inner_step"),
    "judging": ("selfcal.workflows.table_model:TableModel", "_judge"),
    "writing a model": ("os", "rename"),
    "writing a table": ("selfcal.tabular.io.writing", "_write_text"),
}


def pause(place, deaf):
    """Make a command wait for a minute at the third call there, or the first; if deaf, as a long call into C does."""
    owner, name = pkgutil.resolve_name(PLACES[place][0]), PLACES[place][1]
    function, calls = getattr(owner, name), itertools.count(3 if place != "training" else 1)

    def paused(*arguments, **keywords):
        if next(calls) == 3:
            print(f"now {place}", flush=True)
            if deaf:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.siginterrupt(number, False)
                threading.Event().wait()
            time.sleep(60)
        return function(*arguments, **keywords)

    setattr(owner, name, paused)


def freeze(folder):
    """Make a folder read-only, for root too."""
    os.chmod(folder, 0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)


def limit_memory(spare):
    """Allow this process so many bytes more than it has now."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare,) * 2)


def watcher(case, log):
    def watch(event):
        handler = signal.getsignal(signal.SIGTERM)  # before the log tells the other side to send a signal
        os.write(log, f"{event.n_steps}\n".encode())
        if event.n_steps == case.get("step"):
            time.sleep(case.get("sleep", 0))
            while case.get("until_asked") and signal.getsignal(signal.SIGTERM) == handler:
                time.sleep(0.01)
            if case.get("max_bytes"):
                resource.setrlimit(resource.RLIMIT_FSIZE, (case["max_bytes"], case["max_bytes"]))
            if case.get("remove"):
                shutil.rmtree(case["folder"])
            if case.get("network"):
                socket.socket()
            if case.get("freeze"):
                freeze(case["folder"])

    return watch


def command(case):
    """A command, which saves its training after every step and writes its words to the log; its exit code."""
    from selfcal.commands import app

    engine.train.__kwdefaults__["checkpoint_seconds"] = 0
    log = os.open(case["log"], os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        app.main(case["command"])
    except SystemExit as end:
        return end.code
    finally:
        if case.get("measure"):
            print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} kB")
        sys.stdout.flush()
        sys.stderr.flush()


def child(case):
    """One run, which writes its digest; its exit code is the one of the command line."""
    checkpoint.MAX_SAVING_FRACTION = float("inf")
    if "spare" in case:
        limit_memory(case["spare"])
    if "point" in case:
        plant(case["point"], case["number"])
    if "signal" in case:
        strike(case["signal"], case["number"])
    if "pause" in case:
        pause(case["pause"], case.get("deaf", False))
    if case.get("clock"):
        restless_clock()
    if "command" in case:
        return command(case)
    log = os.open(case["log"], os.O_WRONLY | os.O_CREAT)
    said, code = b"", 130
    with contextlib.suppress(KeyboardInterrupt):
        try:
            result = run(
                case["recipe"], case["folder"], callback=watcher(case, log), **case.get("settings", {})
            )
            said, code = digest(result).encode(), 0
        except SelfcalError as error:
            said, code = f"{type(error).__name__}: {error}".encode(), error.exit_code
        except RuntimeError as error:
            said, code = f"{type(error).__name__}: {error}".encode(), 1
    os.ftruncate(log, 0)
    os.pwrite(log, said, 0)
    return code


def no_network(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"the network was asked for: {event}")


def main():
    torch.set_num_threads(1)
    sys.addaudithook(no_network)
    for line in sys.stdin:
        case = json.loads(line)
        if "command" in case:
            importlib.import_module("selfcal.workflows.table_model")  # once, and not in every child
        pid = os.fork()
        if pid == 0:
            os._exit(child(case))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Nursery:
    """The other end of `main`."""

    def __init__(self, log, **environment):
        self.log = log
        kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "PYTHONHASHSEED")}
        self.environment = {**kept, **environment}
        self._child = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.training"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=self.environment,
        )

    def run(self, *words, **case):
        """Run a command in a child to its end; its exit code and what it said."""
        self.start(None, None, command=[*map(str, words)], **case)
        return self.wait(300)

    def start(self, recipe, folder, **case):
        """Fork a child; its process id. One that a failed test left behind goes first."""
        if self._child:
            self._end()
        self.log.unlink(missing_ok=True)
        case = {"recipe": recipe, "folder": str(folder), "log": str(self.log), **case}
        self._process.stdin.write(json.dumps(case) + "\n")
        self._child = int(self._process.stdout.readline())
        return self._child

    def wait(self, seconds=60):
        """The exit code of the child, negative if a signal ended it, and what it left in its log."""
        assert select.select([self._process.stdout], [], [], seconds)[0], "the child did not end"
        return self._code(), self.log.read_text() if self.log.exists() else ""

    def _code(self):
        self._child = None
        return int(self._process.stdout.readline())

    def _end(self):
        with contextlib.suppress(ProcessLookupError):  # it has ended, and nobody asked for its code
            os.kill(self._child, signal.SIGKILL)
        return self._code()

    def reach(self, place):
        """Wait until the child has come to a step, or to a place."""
        deadline = time.monotonic() + 60
        while not self.log.exists() or f"{place}\n" not in self.log.read_text():
            assert time.monotonic() < deadline, f"{place} was not reached"
            time.sleep(0.005)

    def close(self):
        if self._child:
            self._end()
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


if __name__ == "__main__":
    main()
