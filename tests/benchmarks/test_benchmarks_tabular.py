"""The benchmark on real tables, with made-up ones: the same rows for all, nothing run twice, words that fit."""

import gzip
import inspect
import json
import math

import numpy as np
import polars as pl
import pytest
from docs import refresh
from scipy.stats import t as student
from typer.testing import CliRunner

from benchmarks import tabular
from selfcal._support.parallel import Results
from selfcal.commands import app
from selfcal.commands.fit import fit
from selfcal.datasets import Blobs
from selfcal.workflows.table_model import TableModel

LOSSES = {  # by set: of selfcal, the MLP, the MLP stopped early, boosting; the second seed adds a little
    "won": (0.2, 0.3, 0.4, 0.1),
    "lost": (0.5, 0.3, 0.6, 0.6),
    "even": (0.3, 0.3, 0.3, 0.2),
}


@pytest.fixture
def folder(tmp_path):
    X, y = Blobs(std=1.7).sample(240, seed=0)
    colours = np.array(["red", "green", None])[np.arange(240) % 3]
    table = pl.DataFrame(
        {"east": X[:, 0], "north": X[:, 1], "colour": colours, "target": [f"kind {k}" for k in y]}
    )
    (tmp_path / "tab_blobs.csv.gz").write_bytes(gzip.compress(table.write_csv().encode()))
    return tmp_path


@pytest.fixture
def rows():
    return [
        {
            "dataset": dataset,
            "seed": seed,
            "name": name,
            "failed": None,
            "log_loss": losses[place] + 0.01 * seed * place,
            "accuracy": 0.9,
            "ece": 0.02,
            "noise_floor": 0.01,
            "seconds": 1.0 + seed,
            "rows": [600, 400],
        }
        for dataset, losses in LOSSES.items()
        for seed in range(2)
        for place, name in enumerate(tabular.METHODS)
    ]


def test_the_method_is_the_command_s_own():
    assert inspect.signature(fit).parameters["method"].default in tabular.OURS


def test_rows_to_judge_by_are_those_of_the_command(folder):
    split = tabular.Split.of(folder / "tab_blobs.csv.gz", seed=3)
    own = TableModel(tabular.DEFAULT_METHOD, seed=3, held_out=tabular.HELD_OUT)
    np.testing.assert_array_equal(split.held_out, own.parts(split.table, "target").held_out)
    np.testing.assert_array_equal(np.sort(np.r_[split.train, split.held_out]), np.arange(240))
    assert len(split.held_out) == pytest.approx(96, abs=5)


@pytest.mark.slow
def test_the_command_alone_gives_the_same_numbers(folder):
    data, out = folder / "tab_blobs.csv.gz", folder / "model"
    options = ["--target", "target", "--held-out", tabular.HELD_OUT, "--seed", 1, "--out", out, "--json"]
    said = CliRunner().invoke(app.app, ["fit", str(data), *map(str, options)])
    judged = json.loads(said.stdout)["report_numbers"]["methods"][0]
    (row,) = tabular.work(folder, ("blobs", 1, tabular.OURS))
    assert row["log_loss"] == pytest.approx(judged["log_loss"]["value"])
    assert row["ece"] == pytest.approx(judged["ece"]["value"])


def test_large_tables_are_sampled_class_by_class(folder, monkeypatch):
    monkeypatch.setattr(tabular, "MOST_ROWS", 100)
    one, other = (tabular.Split.of(folder / "tab_blobs.csv.gz", seed) for seed in (0, 1))
    assert one.table.height == other.table.height == len(one.codes) == 100
    assert not one.table.equals(other.table)
    np.testing.assert_array_equal(np.bincount(one.codes), np.bincount(other.codes))


@pytest.mark.parametrize("name", tabular.METHODS)
def test_every_method_runs_and_learns(name, folder):
    (row,) = tabular.work(folder, ("blobs", 0, name))
    assert [row[key] for key in tabular.KEY] == ["blobs", 0, name]
    assert row["log_loss"] < math.log(5)  # what five classes cost who knows nothing
    assert row["ece_interval"][0] <= row["ece_interval"][1]
    assert sum(row["rows"]) == 240
    assert row["seconds"] > 0


def test_the_gap_is_paired_and_its_interval_widened_for_overlap(rows):
    found = tabular.gaps(rows, tabular.MLP)["won"]
    differences = np.array([-0.1, -0.11])
    spread = differences.std(ddof=1) * math.sqrt(1 / 2 + tabular.HELD_OUT / (1 - tabular.HELD_OUT))
    half = student.ppf(0.975, 1) * spread
    assert (found.value, found.low, found.high) == pytest.approx((-0.105, -0.105 - half, -0.105 + half))
    back = tabular.gaps(rows, tabular.MLP)["lost"]
    assert (back.value, back.low, back.high) == pytest.approx((0.195, 0.195 - half, 0.195 + half))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-2, -1, "better"), (-1, 1, "open"), (1, 2, "worse"), (np.nan, np.nan, "open")],
)
def test_only_an_interval_without_zero_is_clear(low, high, verdict):
    assert tabular.Gap("other", (low + high) / 2, low, high).verdict == verdict


def test_the_better_of_two_is_chosen_set_by_set(rows):
    found = tabular.gaps(rows, tabular.MLP, tabular.BOOSTING)
    assert {name: gap.other for name, gap in found.items()} == {
        "won": tabular.BOOSTING,
        "lost": tabular.MLP,
        "even": tabular.BOOSTING,
    }


def test_words_fit_the_numbers(rows):
    assert tabular.standing(rows, tabular.MLP).startswith("2 of 3 sets (clearly better on 1, ")
    assert tabular.standing(rows, tabular.MLP).endswith("; worse on lost")
    assert tabular.standing(rows, tabular.STOPPED_MLP).startswith("3 of 3 sets")
    assert tabular.standing(rows, tabular.BOOSTING).endswith("; worse on won, even")
    text = tabular.markdown(rows)
    assert "over 2 seeds" in text
    assert "2.0 ± 0.0 (1.0)" in text
    assert text.count("| lost | 600, 400 |") == 4


def test_one_seed_has_no_spread(rows):
    text = tabular.markdown([row for row in rows if row["seed"] == 0])
    assert "over 1 seed." in text
    assert "nan" not in text


def test_what_is_kept_is_not_run_again(tmp_path, rows):
    kept = Results(tmp_path / "rows.json", {})
    kept.write(rows[::-1])
    asked = tabular.run(tmp_path, ["lost", "won"], 2, kept, jobs=1)
    assert [row["dataset"] for row in asked] == ["lost"] * 8 + ["won"] * 8
    tabular.forget(kept)
    assert {row["name"] for row in kept.rows()} == set(tabular.METHODS) - {tabular.OURS}
    assert len(kept.rows()) == len(rows) * 3 // 4


def test_the_page_has_a_place_for_the_tables():
    page = (refresh.HERE / "tabular.md").read_text()
    assert [found[1] for found in refresh.MARKED.findall(page)] == [tabular.TITLE]
