"""A search that several processes share: none of its trials is lost or counted twice, whatever happens to them."""

import collections
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import optuna
import pytest

from selfcal.errors import ConfigError
from selfcal.workflows import shared_search
from selfcal.workflows._study_storage import open_storage
from selfcal.workflows.comparison import Candidate
from selfcal.workflows.shared_search import SharedSearch, _Study
from tests.commands.conftest import as_json, people, run

WORKER = """
import sys
import selfcal.workflows.shared_search as shared_search
shared_search.STALE_SECONDS, shared_search.BEAT_SECONDS = 5.0, 0.5
from selfcal.commands.app import main
main(sys.argv[1:])
"""
QUICK = ["--method", "standard", "--max-epochs", "8", "--jobs", "1"]


@pytest.fixture
def table(tmp_path):
    people().write_csv(tmp_path / "people.csv")
    return tmp_path / "people.csv"


def tune(table, *words, study="study.journal"):
    words = [*words, "--study", study if "://" in str(study) else table.parent / study]
    return ["tune", table, "--target", "kind", "--out", table.parent / "tuned", *words]


def start(words):
    command = [sys.executable, "-c", WORKER, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes)


def ended(worker):
    said, errors = worker.communicate(timeout=80)
    assert worker.returncode == 0, errors
    return said


def trials(place):
    """The trials in the study, without those that a worker gave back."""
    try:
        study = optuna.load_study(study_name=shared_search.NAME, storage=open_storage(str(place)))
    except KeyError:  # it is just being created
        return []
    return [trial for trial in study.trials if not trial.user_attrs.get("given back")]


def finished(found):
    """How many trials with a result each setting has."""
    return collections.Counter(
        trial.user_attrs["setting"] for trial in found if trial.state.name in ("COMPLETE", "PRUNED")
    )


def running(place, worker):
    return [
        trial
        for trial in trials(place)
        if trial.state.name == "RUNNING" and trial.user_attrs["worker"].endswith(f"process {worker.pid}")
    ]


def kill_while_it_runs_a_trial(worker, place):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        os.kill(worker.pid, signal.SIGSTOP)
        caught = running(place, worker)
        if caught:
            worker.kill()
            worker.communicate()
            return caught[0].number
        os.kill(worker.pid, signal.SIGCONT)
        time.sleep(0.02)
    raise AssertionError("the worker ran no trial")


@pytest.mark.fault("F13")
def test_two_workers_one_of_which_is_killed_and_restarted(table):
    words = [*tune(table, *QUICK), "--trials", "40", "--json"]
    journal = table.parent / "study.journal"
    steady, victim = start(words), start(words)
    lost = kill_while_it_runs_a_trial(victim, journal)
    results = [json.loads(ended(worker)) for worker in (steady, start(words))]
    assert results[0] == results[1]
    found = trials(journal)
    counts = finished(found)
    assert len(counts) == 40
    assert set(counts.values()) == {1}
    assert [trial.number for trial in found if trial.state.name == "FAIL"] == [lost]
    told = {one["number"]: one for one in results[0]["trials"]}
    assert len(told) == 41
    assert told[lost]["status"] == "lost"
    again = [one for one in told.values() if one["name"] == told[lost]["name"] and one["number"] != lost]
    assert [one["status"] in ("complete", "pruned") for one in again] == [True]
    assert {one["status"] for one in told.values()} == {"complete", "pruned", "lost"}
    assert told[next(n for n, one in told.items() if one["status"] == "pruned")]["seeds"] == 1
    rows = json.loads((table.parent / "tuned" / "results.json").read_text())["rows"]
    assert {row["trial"] for row in rows if row["status"] != "lost"} == set(told) - {lost}


def test_two_workers_on_a_database(table):
    place = f"sqlite:///{table.parent}/study.db"
    words = [*tune(table, *QUICK, study=place), "--trials", "10", "--seeds", "1", "--json"]
    results = [json.loads(ended(worker)) for worker in [start(words), start(words)]]
    assert results[0] == results[1]
    counts = finished(trials(place))
    assert len(counts) == 10
    assert set(counts.values()) == {1}


def test_an_interrupt_gives_the_trial_to_others(table):
    journal = table.parent / "study.journal"
    endless = ["--method", "standard", "--max-epochs", "1000000", "--jobs", "1"]
    worker = start([*tune(table, *endless), "--grid", "patience=1000000"])
    deadline = time.monotonic() + 60
    while not (journal.exists() and running(journal, worker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    worker.send_signal(signal.SIGINT)
    _, errors = worker.communicate(timeout=30)
    assert worker.returncode == 130
    assert "Traceback" not in errors
    (given_back,) = optuna.load_study(
        study_name=shared_search.NAME, storage=open_storage(str(journal))
    ).trials
    assert given_back.user_attrs["given back"]
    assert given_back.state.name == "FAIL"


@pytest.mark.fault("F13")
def test_a_journal_that_was_cut_off_in_a_line(table):
    words = [*tune(table, *QUICK), "--trials", "3", "--seeds", "1"]
    first = as_json(*words)["trials"]
    journal = table.parent / "study.journal"
    with open(journal, "a") as file:
        file.write('{"op_code":4,"worker')
    more = as_json(*words[:-4], "--trials", "5", "--seeds", "1", "--force")["trials"]
    assert more[:3] == first
    assert len(more) == 5
    assert as_json(*words[:-4], "--trials", "5", "--seeds", "1")["trials"] == more  # shown, not run again


@pytest.mark.fault("F13")
@pytest.mark.parametrize(
    "content", ["size,kind\n1,a\n", '{"size": 1}\n{"size": 2}\n', '{"op_code":\n{"op_code":0}\n']
)
def test_a_file_that_is_no_journal(content, table):
    journal = table.parent / "study.journal"
    journal.write_text(content)
    result = run(*tune(table, *QUICK))
    assert result.exit_code == 3
    assert "--study must be the journal of a study, or a new file" in result.stderr
    assert journal.read_text() == content


@pytest.mark.fault("F13")
def test_a_trial_that_fails_is_listed_and_not_repeated(table):
    words = tune(table, *QUICK, "--grid", "learning_rate=0.01,1e30")
    found = as_json(*words)
    assert found["best"] == "learning_rate=0.01"
    (failed,) = [one for one in found["trials"] if one["status"] == "failed"]
    assert failed["name"] == "learning_rate=1e+30"
    assert failed["failed"].startswith("TrainingError")
    result = run(*words)
    assert f"note: Trial {failed['number']}, learning_rate=1e+30, failed: TrainingError" in result.stderr
    assert len(trials(table.parent / "study.journal")) == 2


@dataclass
class Toy:
    """A task whose log loss is the number in the name of the settings."""

    target: str = "y"

    def identity(self):
        return {"data": "one", "target": self.target}

    def run(self, candidate, seed):
        return {
            "name": candidate.name,
            "seed": seed,
            "failed": None,
            "log_loss": float(candidate.name) + seed / 100,
        }


def search(place, n=8, *, seeds=4, target="y", values=(1, 2)):
    names = [Candidate(str(i), "standard") for i in range(n)]
    return SharedSearch(Toy(target), names, {"hidden": values}, seeds, str(place))


def test_halving(tmp_path):
    """Settings that come one after the other, each worse than the best so far, end after the first seed."""
    found = search(tmp_path / "study").run(jobs=1)
    assert [(one.status, len(one.rows)) for one in found] == [("complete", 4), *[("pruned", 1)] * 7]


def test_another_search_is_refused_by_what_differs(tmp_path):
    search(tmp_path / "study").run(jobs=1)
    with pytest.raises(ConfigError, match=r"is for target 'y' instead of 'z'\. Use the table"):
        search(tmp_path / "study", target="z").run(jobs=1)
    with pytest.raises(
        ConfigError, match="is for space 'hidden from 1, 2' instead of 'hidden from 1, 3', seeds 4"
    ):
        search(tmp_path / "study", values=(1, 3), seeds=2).run(jobs=1)
    assert len(search(tmp_path / "study", n=9).run(jobs=1)) == 9  # more of the same list


def test_two_workers_take_the_same_settings_at_once(tmp_path):
    ours, other = (_Study.opened(search(tmp_path / "study")) for _ in range(2))
    wanted = ours.free()[0]
    assert other.free()[0] == wanted
    assert ours.taken(wanted) is not None
    assert other.taken(wanted) is None
    assert [trial.number for trial in other.running()] == [0]
    assert wanted not in other.free()


def test_a_worker_that_was_taken_for_dead(tmp_path, monkeypatch):
    """Its trial is given to another one, and what it finishes afterwards does not count."""
    slow, quick = (_Study.opened(search(tmp_path / "study", n=1)) for _ in range(2))
    (only,) = slow.free()
    number = slow.taken(only)
    quick.fail_stale()
    monkeypatch.setattr(shared_search, "STALE_SECONDS", 0.0)
    quick.fail_stale()
    again = quick.taken(only)
    assert again is not None
    slow.run(number, only)
    quick.run(again, only)
    assert [one.status for one in slow.trials()] == ["lost", "complete"]


def test_settings_that_workers_die_of(tmp_path, monkeypatch):
    study = _Study.opened(search(tmp_path / "study", n=1))
    monkeypatch.setattr(shared_search, "STALE_SECONDS", 0.0)
    for _ in range(3):
        study.taken(*study.free())
        study.fail_stale()
        study.fail_stale()
    assert study.free() == []
    assert [one.status for one in study.trials()] == ["lost"] * 3


def test_without_optuna(table, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "optuna"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = run(*tune(table, *QUICK))
    assert result.exit_code == 2
    assert "pip install 'selfcal[search]'" in result.stderr
    assert not (table.parent / "study.journal").exists()


def test_trials_without_a_study(table):
    result = run("tune", table, "--target", "kind", "--trials", "3")
    assert result.exit_code == 2
    assert "--trials needs --study" in result.stderr
