"""The benchmark of what several workers cost, at small sizes."""

import json

import pytest

from benchmarks import scaling


@pytest.mark.slow
def test_calls_trials_and_steps_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "CALLS", 4)
    monkeypatch.setattr(scaling, "WORKERS", (1, 2))
    monkeypatch.setattr(scaling, "TRIALS", (3, 6))
    monkeypatch.setattr(scaling, "PROCESSES", (1, 2))
    scaling.main(["--repeats", "1", "--json", str(tmp_path / "s.json"), "--results", str(tmp_path / "R.md")])
    rows = json.loads((tmp_path / "s.json").read_text())["rows"]
    assert [(row["case"], row["size"]) for row in rows] == [
        (case, size)
        for case, sizes in (("call", (1, 2)), ("trial", (3, 6)), ("step", (1, 2)))
        for size in sizes
    ]
    assert all(row["seconds"] > 0 for row in rows)
    assert "| trial | 6 trials |" in (tmp_path / "R.md").read_text()


def test_growth_is_extrapolated_by_the_slope_of_the_largest_sizes():
    rows = [{"size": n, "seconds": seconds} for n, seconds in ((1, 5.0), (2, 1.0), (8, 2.0))]
    assert scaling.slope(rows) == pytest.approx(0.5)
    assert scaling.extrapolated(rows, 32) == pytest.approx(4.0)


def test_what_gets_cheaper_is_not_extrapolated_downwards():
    rows = [{"size": n, "seconds": 1 / n} for n in (1, 2)]
    assert scaling.extrapolated(rows, 64) == 0.5
