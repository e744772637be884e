"""The benchmark of one run against a grid runs, at a size where numbers mean nothing, and its tables are right."""

import gzip
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import _one_run_cases as cases
from benchmarks import _one_run_sets as sets
from benchmarks import one_run
from selfcal._support.parallel import Results


@pytest.fixture
def folder(tmp_path):
    """A table of three classes, and images of ten, in the form of those of the benchmark."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    lines = [
        f"{a:.3f},{b:.3f},{c}"
        for (a, b), c in zip(rng.normal(size=(240, 2)) + 3 * y[:, None], y, strict=True)
    ]
    (tmp_path / "tab_vehicle.csv.gz").write_bytes(
        gzip.compress("\n".join(["a,b,target", *lines, ""]).encode())
    )
    images = rng.integers(0, 256, (200, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "fashion_mnist.npz", x_test=images, y_test=np.arange(200) % 10)
    return tmp_path


@pytest.mark.parametrize("name", ["blobs-1.3", "vehicle", "digits", "fashion"])
def test_the_parts_of_a_draw_are_apart_and_scaled_by_the_training_rows(name, folder, monkeypatch):
    monkeypatch.setattr(sets, "TEST_ROWS", 50)
    monkeypatch.setattr(sets, "ROWS", 120)
    parts = sets.parts_of(name, 0, folder)
    assert len(parts.test[1]) == 50
    assert len(parts.train[1]) == 3 * len(parts.held_out[1])
    x = parts.train[0]
    assert float(x.mean(dim=0).abs().max()) < 0.2
    rows = {tuple(row.tolist()) for row in x}
    assert not any(tuple(row.tolist()) in rows for row in parts.test[0])


def test_the_training_rows_of_two_cases_differ_from_those_held_out(folder):
    parts = sets.parts_of("digits", 0, folder)
    few = cases.imbalanced(parts, 0).train[1].bincount()
    assert few[0] > 4 * few[9]
    wrong = (cases.mislabelled(parts, 0).train[1] != parts.train[1]).float().mean()
    assert float(wrong) == pytest.approx(cases.WRONG, abs=0.05)


def test_every_case_runs_and_finished_units_are_not_run_again(folder, monkeypatch, capsys):
    monkeypatch.setattr(cases, "STEPS", 24)
    monkeypatch.setattr(cases, "step_time", lambda case, parts: 1.5)
    for name, case in list(cases.CASES.items()):
        monkeypatch.setitem(cases.CASES, name, replace(case, values=case.values[:2]))
    units = [
        (name, "vehicle", seed, part) for name in cases.CASES for seed in (0, 1) for part in one_run.PARTS
    ]
    rows = [row for unit in units for row in one_run.rows_of_unit(unit, folder)]
    assert all(np.isfinite(row["log_loss"]) for row in rows if row["part"] != one_run.TIME)
    file = folder / "one_run.json"
    Results(file, {"steps": 24, "width": cases.WIDTH, "wrong": cases.WRONG}).write(rows)
    arguments = ["--data", str(folder), "--json", str(file), "--sets", "vehicle", "--seeds", "0", "1"]
    monkeypatch.setattr(sys, "argv", ["one_run", *arguments, "--results", str(folder / "RESULTS.md")])
    one_run.main()
    text = capsys.readouterr().out
    assert all(f"| {name} | grid, best |" in text for name in cases.CASES)
    assert "free weights" in text
    assert "trusted rows alone" in text
    assert "# One run against a grid" in (folder / "RESULTS.md").read_text()


def test_the_time_of_a_step_is_a_ratio(monkeypatch):
    monkeypatch.setattr(cases, "STEPS", 20)
    parts = sets.parts_of("blobs-1.3", 0, Path())
    assert cases.step_time(cases.CASES["focal gamma"], parts, repeats=1) > 0


def row(method, log_loss, *, seed=0, validation=None, steps=100, **more):
    own = {"learned": "focal gamma", "dataset": "vehicle", "seed": seed, "part": "learned", "method": method}
    scores = {"log_loss": log_loss, "ece": 0.1, "accuracy": 0.8, "steps": steps}
    return own | scores | ({} if validation is None else {"validation": validation}) | more


def test_the_best_of_the_grid_is_chosen_on_held_out_rows_and_costs_are_counted_in_trainings():
    rows = []
    for seed, shift in enumerate((0.0, 0.07)):
        rows += [row("grid", 0.5, seed=seed, validation=0.3), row("grid", 0.4, seed=seed, validation=0.6)]
        rows += [row("grid", 0.9, seed=seed, validation=0.9)]
        rows.append(row("one run", 0.48 + shift, seed=seed, validation=0.5))
        again = 0.4 + 10 * shift
        rows.append(row("one run, restarted", 0.6, seed=seed, validation=again, steps=220))
    rows.append({**row("time", 0.0), "part": one_run.TIME, "ratio": 1.2})
    table = {each["method"]: each for each in one_run.compared(rows)}
    assert table["best"]["log_loss"] == 0.5
    assert table["median"]["log_loss"] == 0.5
    assert table["one run"]["difference"] == pytest.approx(0.015)
    assert table["one run"]["error"] == pytest.approx(0.035)
    assert one_run.reaches(table["one run"])
    assert table["one run, restarted"]["log_loss"] == pytest.approx(
        (0.6 + 0.55) / 2
    )  # the better on held-out rows
    assert table["one run, restarted"]["difference"] == pytest.approx(0.075)
    assert not one_run.reaches(table["one run, restarted"])
    costs = {method: each["time"] for method, each in table.items()}
    assert costs == pytest.approx({"best": 3, "median": 1, "one run": 1.2, "one run, restarted": 2.4})
    assert table["one run, restarted"]["steps"] == pytest.approx(2.2)
    assert table["one run"]["spread"] == 0
    text = one_run.report(rows)
    assert "**One run**, in at most 1.5 times the time" in text
    assert text.count("smaller, 1 of 1 hyperparameters") == 1
    assert text.count("smaller, 0 of 1 hyperparameters") == 1
