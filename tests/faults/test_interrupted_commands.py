"""`selfcal fit` killed, stopped, started twice and in strange surroundings: in the end, the model is the same."""

import os
import signal
import time
from pathlib import Path

import pytest

from selfcal._support.locks import locked
from selfcal.commands.fit import unfinished
from tests.commands.conftest import as_json, run, shelf, succeed
from tests.faults.training import POINTS

__all__ = ["shelf"]  # the fixture

METHODS = {"standard": "6", "bo4sc": "22"}
MOVES = ("before a folder moves", "after a folder moved")


def fit(shelf, method, out):
    words = ["fit", shelf / "people.csv", "--target", "kind", "--method", method]
    return [*words, "--max-epochs", METHODS[method], "--out", out]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def undisturbed_models(shelf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    for method in METHODS:
        succeed(*fit(shelf, method, folder / method))
    return {method: contents(folder / method) for method in METHODS}


def survive(nursery, words, kills):
    """Kill the command at each of these points, then let it finish; an older model is there all the time."""
    for point, number in kills:
        assert nursery.run(*words, "--resume", "--force", point=point, number=number)[0] == -signal.SIGKILL
        assert as_json("inspect", words[-1])["model"] == str(words[-1])
    code, said = nursery.run(*words, "--resume", "--force")
    assert code == 0, said
    assert sorted(os.listdir(words[-1].parent)) == [words[-1].name]


@pytest.mark.fault("F1")
@pytest.mark.slow
def test_killed_commands_come_to_the_same_model(nursery, shelf, undisturbed_models, tmp_path):
    """In a step, between two saves, and between the renames of the old model's folder and the new one's."""
    succeed(*fit(shelf, "standard", tmp_path / "m"))
    words = fit(shelf, "bo4sc", tmp_path / "m")
    survive(nursery, words, [("in a step", 2), ("not synced", 9), ("after a folder moved", 1)])
    assert contents(tmp_path / "m") == undisturbed_models["bo4sc"]


@pytest.mark.fault("F1")
@pytest.mark.slow
def test_a_killed_refit_comes_to_the_same_model(nursery, shelf, tmp_path):
    """The training before it has ended: it is not repeated, and its report is the same."""
    words = [*fit(shelf, "standard", tmp_path / "m"), "--refit"]
    assert nursery.run(*words, point="in a step", number=2)[0] == -signal.SIGKILL  # the fourth of the refit
    assert os.listdir(tmp_path) == [".m.training"]
    assert len(list(unfinished(tmp_path / "m").rglob("refit/checkpoint-*"))) == 2
    code, said = nursery.run(*words, "--resume")
    assert code == 0, said
    assert os.listdir(tmp_path) == ["m"]
    succeed(*fit(shelf, "standard", tmp_path / "other"), "--refit")
    assert contents(tmp_path / "m") == contents(tmp_path / "other")


@pytest.mark.fault("F1")
@pytest.mark.slow_faults
@pytest.mark.parametrize("method", METHODS)
def test_commands_killed_at_every_point(method, nursery, shelf, undisturbed_models, tmp_path):
    succeed(*fit(shelf, "standard", tmp_path / "m"))
    kills = [(point, 2) for point in POINTS] if method == "bo4sc" else [("in a step", 1), ("not synced", 3)]
    survive(nursery, fit(shelf, method, tmp_path / "m"), [*kills, *((move, 1) for move in MOVES)])
    assert contents(tmp_path / "m") == undisturbed_models[method]


@pytest.mark.fault("F2")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["TERM", "INT"]
)
def test_asked_to_stop(number, nursery, shelf, undisturbed_models, tmp_path):
    words = fit(shelf, "standard", tmp_path / "m")
    code, said = nursery.run(*words, signal=int(number), number=3)
    assert code == 128 + number
    assert "Stopped; nothing is lost. Add --resume to the same command" in said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == [".m.training"]
    assert nursery.run(*words, "--resume")[0] == 0
    assert contents(tmp_path / "m") == undisturbed_models["standard"]
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.fault("F12")
def test_two_commands_for_one_folder(nursery, shelf, tmp_path):
    pid = nursery.start("standard", unfinished(tmp_path / "m"), step=18, sleep=30)
    nursery.reach(18)
    result = run(*fit(shelf, "standard", tmp_path / "m"))
    os.kill(pid, signal.SIGKILL)
    nursery.wait()
    assert result.exit_code == 2
    assert f"is in use by process {pid}. Wait for it to end" in result.stderr
    assert os.listdir(tmp_path) == [".m.training"]  # the other one's


def stopped(pid):
    """Wait until a process has stopped itself with SIGSTOP."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "the process did not stop"
        time.sleep(0.01)


@pytest.mark.fault("F18")
def test_the_same_command_while_the_first_still_trains(nursery, shelf, undisturbed_models, tmp_path):
    """Its checkpoints are there, but it was not interrupted: nobody should resume it or remove its folder."""
    words = fit(shelf, "standard", tmp_path / "m")
    words[-1] = tmp_path / "link" / "m"
    (tmp_path / "link").symlink_to(tmp_path)
    pid = nursery.start(None, None, command=[*map(str, words)], signal=int(signal.SIGSTOP), number=3)
    stopped(pid)
    assert list(unfinished(tmp_path / "m").rglob("checkpoint-*"))
    for more in ([], ["--resume"], ["--force"]):
        result = run(*fit(shelf, "standard", tmp_path / "m"), *more)
        assert result.exit_code == 2
        assert f"is in use by process {pid}. Wait for it to end" in result.stderr
        assert "interrupted" not in result.stderr
    os.kill(pid, signal.SIGCONT)
    assert nursery.wait(300)[0] == 0
    assert contents(tmp_path / "m") == undisturbed_models["standard"]
    assert sorted(os.listdir(tmp_path)) == ["link", "m"]


@pytest.mark.fault("F18")
@pytest.mark.parametrize("command", ["compare", "tune", "reproduce"])
def test_results_belong_to_one_command_at_a_time(command, nursery, shelf, tmp_path):
    words = {"reproduce": ["reproduce", "bo4sc", "--seeds", "1"]}.get(command)
    words = words or [command, shelf / "people.csv", "--target", "kind"]
    with locked(tmp_path / "c"):
        code, said = nursery.run(*words, "--out", tmp_path / "c")
    assert code == 2
    assert f"is in use by process {os.getpid()}. Wait for it to end" in said
    assert os.listdir(tmp_path) == []


@pytest.mark.fault("F14")
def test_strange_surroundings_change_nothing(nursery, shelf, undisturbed_models, tmp_path):
    """No home folder, no terminal, NO_COLOR, another hash seed, no sockets, and a clock that jumps by days."""
    assert "HOME" not in nursery.environment
    assert nursery.environment["PYTHONHASHSEED"] != os.environ.get("PYTHONHASHSEED", "random")
    code, said = nursery.run(*fit(shelf, "bo4sc", tmp_path / "m"), clock=True)
    assert code == 0, said
    assert "\x1b" not in said
    assert contents(tmp_path / "m") == undisturbed_models["bo4sc"]
    code, said = nursery.run("predict", tmp_path / "m", shelf / "people.csv", "--out", tmp_path / "p.csv")
    assert code == 0, said
    assert (tmp_path / "p.csv").read_text().count("\n") == 161
