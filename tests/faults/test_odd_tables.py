"""Tables that are sound to read and still odd: rare classes, noise, twins, and more than there is room for."""

import os
import re

import numpy as np
import polars as pl
import pytest

from selfcal.tabular.preprocessing import Preprocessor
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import QUICK, as_json, people, quick, run, shelf, succeed

__all__ = ["shelf"]  # the fixture


def fit(folder, table, *words):
    table.write_csv(folder / "d.csv")
    return ["fit", folder / "d.csv", "--target", "kind", "--out", folder / "m", *quick(*words)]


@pytest.mark.fault("D16")
def test_a_class_with_one_row_is_trained_on_and_flagged(tmp_path):
    rare = pl.DataFrame({"size": [1.0], "colour": ["red"], "weight": [1.0], "kind": ["rare"]})
    result = succeed(*fit(tmp_path, pl.concat([people(), rare])))
    told = "too few rows for evaluation; their calibration is not estimable: 'rare'"
    assert told in result.stderr
    assert "not estimable" in (tmp_path / "m" / "report.html").read_text()
    assert "rare" in as_json("inspect", tmp_path / "m")["description"]["classes"]["values"]
    model = TableModel.load(tmp_path / "m")
    assert model.predict(rare).probs.shape == (1, 4)


@pytest.mark.fault("D16")
def test_more_classes_than_rows_to_judge_each(tmp_path):
    """Eighty rows of forty classes: it trains and says what cannot be judged, or says that it cannot."""
    kinds = pl.Series([f"k{i % 40}" for i in range(80)])
    result = run(*fit(tmp_path, people(80).with_columns(kind=kinds)))
    if result.exit_code == 0:
        assert "not estimable" in result.stderr
    else:
        assert result.exit_code == 3
        assert "nearly all classes have a single row" in result.stderr
        assert os.listdir(tmp_path) == ["d.csv"]
    lonely = people(60).with_columns(kind=pl.Series([f"k{i}" for i in range(60)]))
    result = run(*fit(tmp_path, lonely))
    assert result.exit_code == 3
    assert "nearly all classes have a single row" in result.stderr


@pytest.mark.fault("D16")
@pytest.mark.parametrize("rows", [1, 2])
def test_folds_without_a_class(rows, tmp_path):
    """`calibrate` divides rows into five parts; a class may have fewer."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(60) < rows, "c", np.where(rng.random(60) < 0.5, "a", "b"))
    probs = rng.dirichlet(np.ones(3), 60)
    table = pl.DataFrame({"y": y, **{f"prob_{name}": probs[:, i] for i, name in enumerate("abc")}})
    table.write_csv(tmp_path / "d.csv")
    for calibrator in ("temperature", "isotonic", "vector"):
        words = ["calibrate", tmp_path / "d.csv", "--target", "y", "--calibrator", calibrator]
        succeed(*words, "--out", tmp_path / "p.csv", "--force")
        found = pl.read_csv(tmp_path / "p.csv").select(pl.col("^prob_.*$")).to_numpy()
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


@pytest.mark.fault("D18")
@pytest.mark.parametrize("method", ["standard", "bo4sc"])
def test_labels_of_which_many_are_wrong(method, tmp_path):
    """Forty in a hundred labels drawn anew: no better than such labels allow, and honest about it."""
    rng = np.random.default_rng(5)
    table = people(2000)
    random = pl.Series(rng.choice(["k0", "k1", "k2"], 2000))
    noisy = pl.when(pl.Series(rng.random(2000) < 0.4)).then(random).otherwise("kind")
    words = fit(tmp_path, table.with_columns(kind=noisy), "--method", method, "--max-epochs", "60")
    judged = as_json(*words)["report_numbers"]["methods"][0]
    assert judged["judgement"] == "honest", judged["verdict"]
    assert judged["ece"]["value"] < 0.08
    assert judged["accuracy"]["high"] > 1 / 3
    assert judged["accuracy"]["low"] < 0.6 + 0.4 / 3


@pytest.mark.fault("D18")
@pytest.mark.parametrize("seed", [99, pytest.param(7, marks=pytest.mark.slow)])
def test_labels_that_are_noise_promise_nothing(seed, tmp_path):
    rng = np.random.default_rng(seed)
    table = people(400).with_columns(kind=pl.Series(rng.choice(["k0", "k1"], 400)))
    judged = as_json(*fit(tmp_path, table))["report_numbers"]["methods"][0]
    prior = (table["kind"] == "k0").mean()
    assert judged["accuracy"]["low"] <= max(prior, 1 - prior)
    words = [tmp_path / "m", tmp_path / "d.csv", "--out", tmp_path / "p.csv", "--max-risk", "0.05"]
    assert as_json("predict", *words)["abstained"] == 400


@pytest.mark.fault("D17", "D20")
def test_rows_left_out_and_repeated_rows_are_told(tmp_path):
    twice = pl.concat([people(), people().head(30), people().head(1).with_columns(kind=pl.lit(None))])
    result = succeed(*fit(tmp_path, twice, "--drop-unlabelled"))
    page = (tmp_path / "m" / "report.html").read_text()
    for told in ("1 of 191 rows has no label", "30 of 190 rows repeat an earlier row"):
        assert f"note: {told}" in result.stderr
        assert told in page


@pytest.mark.fault("D20")
def test_twins_are_never_on_two_sides():
    """Were each row's twin to judge it, a network that learns by heart would look perfect."""
    table = pl.concat([people(60)] * 3)
    parts = TableModel().parts(table, "kind")
    sides = [{row % 60 for row in rows} for rows in (parts.train, parts.validation, parts.held_out)]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 60


def predictions(path, rows):
    """A file of predictions of that many rows."""
    part = b"".join(b"a,0.7,0.3\n" if i % 10 < 7 else b"b,0.7,0.3\n" for i in range(1000))
    with open(path, "wb") as file:
        file.write(b"y,prob_a,prob_b\n")
        for _ in range(rows // 1000):
            file.write(part)
    return path


@pytest.mark.fault("D21")
@pytest.mark.slow_faults
def test_commands_that_stream_take_no_more_for_more_rows(nursery, shelf, tmp_path):
    """Twenty times the rows, a hundred megabytes more at most; and never more than the 500 that are promised."""
    people().write_csv(tmp_path / "people.csv")
    header, *lines = (tmp_path / "people.csv").read_text().splitlines(keepends=True)
    commands = {}
    for name, times in (("few", 1), ("many", 20)):
        judged = predictions(tmp_path / f"{name}-p.csv", 100_000 * times)
        (tmp_path / f"{name}.csv").write_text(header + "".join(lines) * (250 * times))
        commands[name] = [
            ["evaluate", judged, "--target", "y"],
            [
                "predict",
                shelf / "people-model",
                tmp_path / f"{name}.csv",
                "--out",
                tmp_path / f"{name}-out.csv",
            ],
        ]
    for few, many in zip(commands["few"], commands["many"], strict=True):
        peaks = []
        for words in (few, many):
            code, said = nursery.run(*words, measure=True)
            assert code == 0, said
            peaks.append(int(re.search(r"peak memory (\d+) kB", said)[1]) / 1024)
        assert peaks[1] < peaks[0] + 100, (few[0], peaks)
        assert peaks[1] < 500 + BASE, (few[0], peaks)


BASE = 300
"""Megabytes of the nursery itself, which has loaded all there is."""


@pytest.mark.fault("D21", "D22")
@pytest.mark.usefixtures("_no_step")
def test_what_has_no_room_is_refused_before_training_with_an_estimate(tmp_path, monkeypatch):
    whole, budgets = Preprocessor.__init__, iter([20_000, 120_000])

    def poor(self, *, max_levels=100, budget=0):
        whole(self, max_levels=max_levels, budget=next(budgets))

    monkeypatch.setattr(Preprocessor, "__init__", poor)
    cases = [
        (
            people(160),
            "The table and its encoding must fit into 0.0 GB of memory; 128 rows of 5 numbers need about",
        ),
        (
            people(400).with_columns(kind=pl.Series([f"k{i % 40}" for i in range(400)])),
            "The table and the probabilities must fit into 0.0 GB of memory; with method 'standard', 40 classes and "
            "160 rows to predict need about",
        ),
    ]
    for table, message in cases:
        result = run(*fit(tmp_path, table))
        assert result.exit_code == 3, result.output
        assert message in result.stderr
        assert os.listdir(tmp_path) == ["d.csv"]


@pytest.mark.fault("D22")
def test_many_columns_classes_and_levels_in_one_table(tmp_path):
    """A small version of the next, for every day."""
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.normal(size=400).round(2) for i in range(500)}
    levels = pl.Series([f"level {i % 300}" for i in range(400)])
    table = pl.DataFrame({**columns, "town": levels, "kind": [f"k{i % 100}" for i in range(400)]})
    result = succeed(*fit(tmp_path, table, "--max-epochs", "1"))
    assert "... and 461 more columns" in result.stdout
    assert as_json("inspect", tmp_path / "m")["description"]["features"]["count"] == 500 + 100


@pytest.mark.fault("D22")
@pytest.mark.slow_faults
@pytest.mark.parametrize("kind", ["columns", "classes", "levels"])
def test_fifty_thousand_columns_ten_thousand_classes_a_million_levels(kind, nursery, tmp_path):
    rng = np.random.default_rng(0)
    if kind == "columns":
        columns = {f"c{i}": rng.integers(10, size=40) for i in range(50_000)}
        table = pl.DataFrame({**columns, "kind": [f"k{i % 2}" for i in range(40)]})
    elif kind == "classes":
        table = pl.DataFrame(
            {"x": rng.normal(size=30_000), "kind": [f"k{i % 10_000}" for i in range(30_000)]}
        )
    else:
        towns = pl.Series(rng.integers(10**6, size=500_000)).cast(pl.String)
        table = pl.DataFrame({"town": "t" + towns, "kind": rng.choice(["a", "b"], 500_000)})
    code, said = nursery.run(*fit(tmp_path, table, "--max-epochs", "1"), measure=True)
    assert code == 0, said
    assert int(re.search(r"peak memory (\d+) kB", said)[1]) < 4 * 2**20


@pytest.mark.parametrize("suffix", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["*", "^.*$"])
def test_a_column_is_not_taken_for_a_pattern(name, suffix, tmp_path):
    """polars reads these names as "all columns", of the features and of the target."""
    for column in ("size", "kind"):
        table, path = people().rename({column: name}), tmp_path / f"{column}.{suffix}"
        table.write_csv(path) if suffix == "csv" else table.write_parquet(path)
        target = name if column == "kind" else "kind"
        result = as_json("fit", path, "--target", target, "--out", tmp_path / column, *QUICK)
        assert result["classes"] == ["k0", "k1", "k2"]
        answers = tmp_path / f"{column}-answers.csv"
        succeed("predict", tmp_path / column, path, "--out", answers)
        assert as_json("evaluate", answers, "--target", target)["rows"] == 160
