"""The benchmark of what several workers cost, at small sizes."""

import json

from benchmarks import scaling


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
