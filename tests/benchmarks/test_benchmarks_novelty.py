"""The benchmark of foreign rows, with small tables."""

import gzip
import json

import numpy as np
import polars as pl
import pytest

from benchmarks import novelty


def table(n, seed, columns="ab"):
    """Three classes, told by numbers that depend on each other, and by a category."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, n)
    numbers = {name: (place + 1) * label + rng.normal(size=n) for place, name in enumerate(columns)}
    return pl.DataFrame({**numbers, "c": np.array(["u", "v", "w"])[label], "target": label})


def test_every_kind_of_foreign_rows_is_made_as_described():
    known = table(200, 0)
    foreign = novelty.Foreign(known, table(50, 1, "x").with_columns(pl.col("c") + "!"), seed=0)
    rows = table(40, 2)
    found = foreign.of(rows)
    assert {kind: made.height for kind, made in found.items()} == dict.fromkeys(found, 40)
    other = found["another table"]
    assert (other["a"] == other["b"]).all()  # the donor has one column of numbers
    assert other["c"].str.ends_with("!").all()
    moved = found["columns moved"]
    assert (moved["a"] == rows["b"]).all()
    assert (moved["b"] == rows["a"]).all()
    times = np.stack([(found["wrong unit"][name] / rows[name]).to_numpy() for name in "ab"])
    np.testing.assert_allclose(np.sort(times, axis=0), [[1.0] * 40, [10.0] * 40])
    assert set(found["independent"]["c"]) <= {"u", "v", "w"}


def test_every_table_and_score_is_measured_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(novelty, "DONORS", {"known": "other"})
    monkeypatch.setattr(novelty, "MAX_EPOCHS", 1)
    for place, name in enumerate(("known", "other")):
        text = table(400, place).write_csv().encode()
        (tmp_path / f"tab_{name}.csv.gz").write_bytes(gzip.compress(text))
    ask = ["--data", str(tmp_path), "--seeds", "0", "--json", str(tmp_path / "n.json")]
    novelty.main([*ask, "--results", str(tmp_path / "R.md")])
    rows = json.loads((tmp_path / "n.json").read_text())["rows"]
    scores = {row["score"] for row in rows}
    assert len(scores) == 1 + len(novelty.OF_THE_MODEL) + len(novelty.OF_FEATURES)
    assert len(rows) == 5 * len(scores)
    assert {(row["ordinary"], row["foreign"]) for row in rows if row["kind"] == "independent"} == {(80, 4)}
    assert all(0 <= row["flagged"] <= 1 and 0 <= row["false_alarms"] <= 0.3 for row in rows)
    assert "| known | left-out class | " in capsys.readouterr().out
    assert (tmp_path / "R.md").read_text().startswith(f"# {novelty.TITLE}")


@pytest.mark.parametrize(
    ("flagged", "alarms", "words"),
    [
        (0.9, 0.06, ["met", "met"]),
        (0.7, 0.06, ["**missed**", "met"]),
        (0.9, 0.12, ["met", "**missed**"]),
    ],
)
def test_verdicts_follow_the_numbers(flagged, alarms, words):
    row = {"flagged": flagged, "false_alarms": alarms, "ordinary": 400, "held_out": 400}
    said = novelty.verdict("t", "k", [row])
    assert f"%), {words[0]}; " in said
    assert said.endswith(f", {words[1]}.")
    assert "standard error 1.54%" in said
