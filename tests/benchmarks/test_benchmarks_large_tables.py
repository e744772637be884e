"""The benchmark of large tables, with small ones."""

import gzip
import json
from functools import partial

import joblib
import numpy as np
import polars as pl
import pytest

from benchmarks import large_tables
from selfcal import SelfCalibratedClassifier


@pytest.fixture
def folder(tmp_path):
    """Both tables, with a hundred rows that have nothing to do with them."""
    rng = np.random.default_rng(0)
    for name in large_tables.TABLES:
        label = rng.integers(0, 3, 120)
        table = pl.DataFrame(
            {"a": label + rng.normal(size=120), "b": np.array(["u", "v"])[label % 2], "target": label}
        )
        (tmp_path / f"tab_{name}.csv.gz").write_bytes(gzip.compress(table.write_csv().encode()))
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """One training run of one epoch in place of `auto`, trees of scikit-learn only, and workers without start-up."""
    monkeypatch.setattr(large_tables, "PEERS", ("sklearn-hgb",))
    monkeypatch.setattr(large_tables, "REPEATS", 1)
    monkeypatch.setattr(large_tables, "CORES", 1)
    monkeypatch.setattr(large_tables, "BUDGET_ROWS", (5_000, 10_000, 20_000))
    monkeypatch.setattr("benchmarks._quality_boosting.MAX_TREES", 3)
    monkeypatch.setattr(
        large_tables,
        "SelfCalibratedClassifier",
        lambda method, **settings: SelfCalibratedClassifier("standard", max_epochs=1, **settings),
    )
    with joblib.parallel_config("threading"):
        yield


def test_every_case_runs_once_and_is_shown(folder, quick, tmp_path, capsys):
    ask = ["--json", str(tmp_path / "large.json"), "--data", str(folder), "--scale", "0.01"]
    ask += ["--methods", "auto-10", "sklearn-hgb", "--results", str(tmp_path / "R.md")]
    large_tables.main(ask)
    rows = json.loads((tmp_path / "large.json").read_text())["rows"]
    assert len(rows) == 3 * 2 + 3
    assert [row["failed"] for row in rows] == [None] * 9
    assert all(np.isfinite(row["log_loss"]) and row["rows_per_second"] > 0 for row in rows)
    shown = capsys.readouterr().out
    assert "**adult: 90 rows to train on, 30 to predict**" in shown
    assert "**generated, 30 columns: 100 rows to train on, 1,000 to predict**" in shown
    assert "- 200 rows, auto, 10 s: 0." in shown
    assert (tmp_path / "R.md").read_text().startswith("# Large tables")
    large_tables.main([*ask, "--again", "auto-10"])
    again = json.loads((tmp_path / "large.json").read_text())["rows"]
    assert [row for row in again if row["method"] == "sklearn-hgb"] == [
        row for row in rows if row["method"] == "sklearn-hgb"
    ]
    assert len(again) == 9


def test_without_a_folder_only_generated_tables_are_run():
    found = large_tables.cells(["auto-10", "catboost"], with_tables=False, seed=3)
    assert found[:2] == [("speed", "auto-10", 3), ("speed", "catboost", 3)]
    assert found[2:] == [(f"budget {rows}", "auto-10", 3) for rows in large_tables.BUDGET_ROWS]


def test_both_cores_are_asked_for(monkeypatch):
    task = large_tables.load("speed", 0, None, 0.01)
    assert (task.X.shape, task.X_test.shape, task.n_classes) == ((100, 30), (1000, 30), 3)
    asked = {}

    class Classifier:
        def __init__(self, method, time_budget, n_jobs=None, **settings):
            asked.update(settings, time_budget=time_budget, n_jobs=n_jobs)

        def fit(self, X, y, feature_groups):
            return self

    monkeypatch.setattr(large_tables, "SelfCalibratedClassifier", Classifier)
    large_tables.fit("auto-60", task, 5)
    assert (asked["n_jobs"], asked["time_budget"], asked["random_state"]) == (2, 60, 5)
    assert asked["n_networks"] is None
    large_tables.fit("auto-one", task, 5)
    assert (asked["n_networks"], asked["time_budget"]) == (1, 60)


def test_ratios_and_verdicts_follow_the_numbers():
    row = {"seed": 0, "failed": None, "log_loss": 0.3, "accuracy": 0.9, "train_rows": 5000, "test_rows": 10}
    row = partial(dict, row)
    rows = [
        row(case="table adult", method="auto-60", seconds=30.0, rows_per_second=5000.0),
        row(case="table adult", method="sklearn-hgb", seconds=20.0, rows_per_second=10000.0),
        row(case="budget 5000", method="auto-10", seconds=11.5, rows_per_second=1.0),
        {"case": "speed", "method": "catboost", "seed": 0, "failed": "ValueError: no"},
    ]
    text = large_tables.markdown(rows)
    assert "| auto, 60 s | 0.3000 | 0.9000 | 30.0 | 1.50x | 5,000 | 0.50x |" in text
    assert "- 5,000 rows, auto, 60 s: 0.50 times, at most 1.1 wanted; met." in text
    assert "- 5,000 rows, auto, 10 s: 1.15 times, at most 1.1 wanted; **missed**." in text
    assert "speed, CatBoost, calibrated failed: `ValueError: no`" in text
    assert "Not measured." in large_tables.markdown([])
