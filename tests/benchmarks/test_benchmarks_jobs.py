"""The benchmark of processes, with small tables and without other work that lasts."""

import gzip
import json
from multiprocessing import active_children

import joblib
import numpy as np
import polars as pl
import pytest

from benchmarks import jobs
from selfcal import SelfCalibratedClassifier, recipes


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 200)
    table = pl.DataFrame({"a": label + rng.normal(size=200), "target": label})
    (tmp_path / "tab_tiny.csv.gz").write_bytes(gzip.compress(table.write_csv().encode()))
    return tmp_path


QUICK = ["one", "two", "usual", "busy", "trials"]


def test_cases_are_run_kept_and_shown(folder, tmp_path, monkeypatch, capsys):
    fitted = []

    def quick(method, **settings):
        fitted.append(settings["n_jobs"])
        small = recipes.auto(candidates=["linear"], folds=2, repeats=1)
        return SelfCalibratedClassifier(small, max_epochs=2, **settings | {"n_jobs": 1})

    monkeypatch.setattr(jobs, "SelfCalibratedClassifier", quick)
    monkeypatch.setattr(jobs, "TRIED", "standard")
    monkeypatch.setattr(jobs, "SEEDS", 2)
    ask = ["--json", str(tmp_path / "jobs.json"), "--data", str(folder), "--results", str(tmp_path / "R.md")]
    ask += ["--cases", *QUICK]
    with joblib.parallel_config("threading"):
        jobs.main(ask)
    rows = json.loads((tmp_path / "jobs.json").read_text())["rows"]
    assert [row["failed"] for row in rows] == [None] * len(QUICK)
    assert fitted == [1, *[jobs.CORES] * 3]
    shown = capsys.readouterr().out
    assert "| tiny |" in shown
    assert "same bits on 1 of 1; met" in shown
    assert "Trials in one worker of joblib take" in shown
    assert (tmp_path / "R.md").read_text().startswith("# Processes")
    jobs.main(ask)
    assert len(fitted) == 4  # nothing is run twice


@pytest.mark.slow
def test_tune_is_run_as_a_command(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "TRIED", "standard")
    ask = ["--json", str(tmp_path / "jobs.json"), "--data", str(folder), "--cases", "tune-1", "tune-2"]
    jobs.main(ask)
    shown = capsys.readouterr().out
    assert "`tune --method standard` with 24 trials is" in shown
    assert "same bits on 1 of 1; met" in shown


def test_other_work_ends():
    before = set(active_children())
    with jobs.other_work(1):
        assert len(set(active_children()) - before) == 1
    assert set(active_children()) <= before


def test_targets_that_are_missed_say_so():
    def row(case, seconds, log_loss, bits="a"):
        cell = {"set": "t", "case": case, "seed": 0, "failed": None}
        return cell | {"seconds": seconds, "log_loss": log_loss, "probabilities": bits}

    missed = [
        row("one", 50.0, 0.5),
        row("two", 45.0, 0.5, "b"),
        row("usual", 45.0, 0.5),
        row("busy", 60.0, 0.51),
    ]
    missed += [
        row("trials", 11.0, 0.5) | {"plain": 10.0, "start": 3.0, "same": True},
        row("killed", 60.0, 0.5, "b"),
    ]
    missed += [row("tune-1", 11.0, 0.5), row("tune-2", 7.0, 0.5, "b")]
    assert [text.count("**missed**") for text in jobs.sections(missed).values()] == [4, 6]
    met = [row("one", 50.0, 0.5), row("two", 25.0, 0.5), row("usual", 25.0, 0.5), row("busy", 60.0, 0.501)]
    met += [row("trials", 10.2, 0.5) | {"plain": 10.0, "start": 3.0, "same": True}, row("killed", 60.0, 0.5)]
    met += [row("tune-1", 10.2, 0.5), row("tune-2", 5.8, 0.5)]
    assert not any("**missed**" in text for text in jobs.sections(met).values())
    (shown,) = jobs.sections([row("busy", 1.0, 1.0) | {"failed": "no"}]).values()
    assert "failed: `no`" in shown
