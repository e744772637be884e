"""The benchmark of many files, with few rows."""

import json

import pytest

from benchmarks import parts


@pytest.mark.slow
def test_a_size_is_evaluated_killed_and_resumed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(parts, "JOBS", 1)
    monkeypatch.setattr(parts, "FILES", 6)
    parts.main(
        [
            "--rows",
            "30000",
            "--csv",
            "3000",
            "--repeats",
            "1",
            "--json",
            str(tmp_path / "p.json"),
            "--folder",
            str(tmp_path),
        ]
    )
    whole, speed, text = json.loads((tmp_path / "p.json").read_text())["rows"]
    for row in (whole, text):
        assert row["same_numbers"]
        assert row["files_reused"] >= 3
        assert row["megabytes_per_process"] < 1000
    assert whole["ece"]["low"] == 0
    assert speed["rows"] == 30_000
    assert speed["in processor time"]["read"] > speed["in processor time"]["evaluate"]
    assert "| .parquet | 3e+04 |" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_the_extrapolation_knows_the_start_up():
    sizes = [{"rows": n, "seconds": 3 + n / 1e6} for n in (1e6, 1e7, 1e8)]
    seconds, slope = parts.extrapolated(sizes)
    assert seconds == pytest.approx(1003)
    assert 0.8 < slope < 1
    assert parts.extrapolated(sizes[:1])[0] == pytest.approx(4000)
