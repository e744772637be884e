"""F13: several trainings, one of which fails, dies, or is cut off with the file that keeps the results."""

import json
import multiprocessing
import os
import signal
import threading
import time

import pytest

from selfcal.workflows.comparison import Task
from tests.commands.conftest import as_json, inline, run, shelf, succeed

__all__ = ["shelf"]  # the fixture


def compare(shelf, out, *words):
    methods = ["--methods", "standard,temperature", "--seeds", "1", "--max-epochs", "4"]
    return ["compare", shelf / "people.csv", "--target", "kind", *methods, "--out", out, *words]


@pytest.mark.fault("F13")
def test_a_trial_that_fails_is_listed_and_the_others_finish(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    words = ["tune", shelf / "people.csv", "--target", "kind", "--method", "standard", "--max-epochs", "4"]
    words += ["--grid", "learning_rate=0.01,1e30", "--seeds", "1", "--out", tmp_path]
    result = succeed(*words)
    assert "note: learning_rate=1e+30 with seed 0 failed: TrainingError: " in result.stderr
    assert "Chosen: learning_rate=0.01" in result.stdout
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["failed"] is None for row in rows] == [True, False]
    monkeypatch.setattr(Task, "run", lambda *_: pytest.fail("a trial was run again"))
    again = as_json(*words, "--force")["standings"]
    assert [list(one["failures"]) for one in again] == [[], ["0"]]


@pytest.mark.fault("F13")
def test_a_trial_that_crashes_outright(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)

    def crash(*arguments):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("selfcal.calibrators.TemperatureScaling.fit", crash)
    found = as_json(*compare(shelf, tmp_path))["standings"]
    assert {one["name"]: one["failures"] for one in found} == {
        "standard": {},
        "temperature": {"0": "ZeroDivisionError: a bug"},
    }


@pytest.mark.fault("F13")
def test_every_trial_fails(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    words = ["tune", shelf / "people.csv", "--target", "kind", "--grid", "learning_rate=1e30", "--seeds", "1"]
    result = run(*words, "--out", tmp_path)
    assert result.exit_code == 4
    assert "error: Every trial failed; the first error was: TrainingError" in result.stderr
    assert os.listdir(tmp_path) == ["results.json"]


@pytest.mark.fault("F13")
@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_results_that_were_cut_off(share, shelf, tmp_path, monkeypatch):
    """Ours are replaced whole, so it was somebody else; they are left for a person to look at."""
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    succeed(*compare(shelf, tmp_path))
    whole = (tmp_path / "results.json").read_bytes()
    cut = whole[: int(share * len(whole))]
    (tmp_path / "results.json").write_bytes(cut)
    result = run(*compare(shelf, tmp_path))
    assert result.exit_code == 3
    assert f"{tmp_path}/results.json is not a results file" in result.stderr
    assert "Move it away to start again" in result.stderr
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [cut]


@pytest.mark.fault("F13")
@pytest.mark.slow_faults
def test_a_worker_is_killed(shelf, tmp_path):
    """A real process of the pool dies; its trial is run again, and all of them finish."""
    killed = []

    def strike():
        deadline = time.monotonic() + 120
        while not killed and time.monotonic() < deadline:
            for worker in multiprocessing.active_children():
                os.kill(worker.pid, signal.SIGKILL)
                killed.append(worker.pid)
                break
            time.sleep(0.05)

    striker = threading.Thread(target=strike)
    striker.start()
    found = as_json(*compare(shelf, tmp_path, "--jobs", "2"))["standings"]
    striker.join()
    assert killed
    assert {one["name"]: one["failures"] for one in found} == {"standard": {}, "temperature": {}}


@pytest.mark.fault("F13")
@pytest.mark.slow_faults
def test_the_whole_command_is_killed(nursery, shelf, tmp_path):
    """Killed as it writes the second result: the first is kept and not run again."""
    words = compare(shelf, tmp_path, "--jobs", "1")
    assert nursery.run(*words, point="before the rename", number=3)[0] == -signal.SIGKILL
    (first,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    code, said = nursery.run(*words)
    assert code == 0, said
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert rows[0] == first  # its seconds, too
    assert [row["name"] for row in rows] == ["standard", "temperature"]
