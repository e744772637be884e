"""F19: SIGINT and SIGTERM wherever they land, one or two of them, in real processes."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from selfcal.commands.fit import unfinished
from tests.commands.conftest import QUICK, shelf, succeed

__all__ = ["shelf"]  # the fixture

TERM, INT = signal.SIGTERM, signal.SIGINT
GAP = 0.02
BRIEFLY = {("reading", "TT"), ("judging", "I"), ("writing a model", "T")}
"""The cases that `make test` runs; all of them are slow tests."""


def send(pid, numbers):
    for number in numbers:
        with suppress(ProcessLookupError):  # the first signal may have ended it already
            os.kill(pid, number)
        time.sleep(GAP)


def fit(shelf, out):
    return ["fit", shelf / "people.csv", "--target", "kind", "--out", out, *QUICK]


def stopped_at(nursery, place, numbers, *words, **case):
    """Send signals to a command at some place of its work; its exit code and last line."""
    pid = nursery.start(None, None, command=[*map(str, words)], pause=place, **case)
    nursery.reach(f"now {place}")
    send(pid, numbers)
    code, said = nursery.wait()
    assert "Traceback" not in said
    return code, said.splitlines()[-1]


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    ("place", "numbers"),
    [
        pytest.param(
            place, numbers, id=f"{place}, {name}", marks=() if (place, name) in BRIEFLY else pytest.mark.slow
        )
        for place in ("reading", "judging", "writing a model")
        for name, numbers in {"T": [TERM], "I": [INT], "TT": [TERM, TERM], "II": [INT, INT]}.items()
    ],
)
def test_stopped_outside_the_training_loop(place, numbers, nursery, shelf, tmp_path):
    code, said = stopped_at(nursery, place, numbers, *fit(shelf, tmp_path / "m"))
    assert code == 128 + numbers[0]
    if place == "reading":
        assert said == f"Stopped by {numbers[0].name}."
        assert os.listdir(tmp_path) == []
    else:
        assert said.startswith("Stopped; nothing is lost. Add --resume to the same command to continue")
        assert os.listdir(tmp_path) == [".m.training"]


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([TERM, TERM], id="TT", marks=pytest.mark.slow),
        pytest.param([INT, INT], id="II", marks=pytest.mark.slow),
        pytest.param([INT, TERM], id="IT"),
    ],
)
def test_stopped_twice_in_the_training_loop(numbers, nursery, shelf, tmp_path):
    """The first would wait for the end of the step; the second does not, and the last checkpoint is whole."""
    code, said = stopped_at(nursery, "training", numbers, *fit(shelf, tmp_path / "m"))
    assert code == 128 + numbers[1]
    assert said.startswith("Stopped; nothing is lost. Add --resume")
    assert list(unfinished(tmp_path / "m").rglob("*.tmp")) == []
    succeed(*fit(shelf, tmp_path / "m"), "--resume")
    for path in (shelf / "people-model").iterdir():
        assert (tmp_path / "m" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.fault("F19")
@pytest.mark.parametrize("place", [pytest.param("reading", marks=pytest.mark.slow), "training"])
def test_a_second_signal_ends_a_long_call_that_hears_none(place, nursery, shelf, tmp_path):
    code, said = stopped_at(nursery, place, [TERM, TERM], *fit(shelf, tmp_path / "m"), deaf=True)
    assert (code, said) == (143, "Stopped by SIGTERM.")


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    "numbers", [[TERM], pytest.param([INT, INT], marks=pytest.mark.slow)], ids=["T", "II"]
)
def test_stopped_amid_a_table_of_predictions(numbers, nursery, shelf, tmp_path):
    (tmp_path / "p.csv").write_text("older")
    words = ["predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / "p.csv", "--force"]
    code, said = stopped_at(nursery, "writing a table", numbers, *words)
    assert (code, said) == (128 + numbers[0], f"Stopped by {numbers[0].name}.")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older"]


def handles(pid, number):
    """Whether a process has a handler for a signal."""
    caught = next(
        line.split()[1]
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt:")
    )
    return bool(int(caught, 16) >> (number - 1) & 1)


def launch(*words, cwd):
    return subprocess.Popen(
        [sys.executable, "-m", "selfcal", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    "numbers", [pytest.param([TERM], marks=pytest.mark.slow), [INT, INT]], ids=["T", "II"]
)
def test_stopped_while_it_starts(numbers, shelf, tmp_path):
    """As soon as there is a handler: before torch is loaded, which takes most of the time of a short command."""
    running = launch(*fit(shelf, tmp_path / "m"), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not handles(running.pid, TERM):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    send(running.pid, numbers)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (128 + numbers[0], f"Stopped by {numbers[0].name}.\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.fault("F19")
@pytest.mark.slow_faults
@pytest.mark.parametrize("numbers", [[INT], [TERM]], ids=["I", "T"])
def test_the_workers_of_a_command_say_nothing(numbers, shelf, tmp_path):
    """Ctrl-C goes to all processes of a command; those that still load torch would each show a traceback."""
    words = ["compare", shelf / "people.csv", "--target", "kind", "--methods", "standard", "--jobs", "2"]
    running = launch(*words, "--out", tmp_path / "c", cwd=tmp_path)
    children, deadline = Path(f"/proc/{running.pid}/task/{running.pid}/children"), time.monotonic() + 60
    while len(children.read_text().split()) < 3:  # two, and the one that tidies up after them
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(running.pid, numbers[0])
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (128 + numbers[0], f"Stopped by {numbers[0].name}.\n")


@pytest.mark.fault("F19")
@pytest.mark.slow_faults
def test_stopped_at_random_moments(shelf, tmp_path):
    """From the start of the process to its last breath; the moments are spread over the time a whole run takes."""
    moments = random.Random(0)
    started = time.monotonic()
    running = launch(*fit(shelf, tmp_path / "m"), "--force", cwd=tmp_path)
    while not handles(running.pid, TERM):
        time.sleep(0.005)
    ready = time.monotonic() - started
    running.communicate(timeout=120)
    assert running.returncode == 0
    whole = time.monotonic() - started
    for _ in range(20):
        numbers = moments.choice([[TERM], [INT], [TERM, TERM], [INT, INT], [INT, TERM]])
        running = launch(*fit(shelf, tmp_path / "m"), "--force", "--resume", cwd=tmp_path)
        while not handles(running.pid, TERM):
            time.sleep(0.005)
        time.sleep(moments.uniform(0, whole - ready))
        send(running.pid, numbers)  # a process that has ended stays until it is waited for
        _, said = running.communicate(timeout=60)
        assert "Traceback" not in said
        assert running.returncode in {0, *(128 + number for number in numbers)}, said
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".tmp"] == []
