"""Copies in disguise, columns that tell too much, labels that are numbers: what would flatter a model."""

import datetime
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from selfcal import SelfCalibratedClassifier
from selfcal.datasets import Blobs
from selfcal.tabular.io import read_table
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import as_json, people, run, succeed
from tests.faults.test_odd_tables import fit

SPELLINGS = ("{:.4f}", "{:.7f}", "{:.6e}", " {:+.4f} ", "{:09.5f}")
DISGUISES = ("none", "spelling", "identifier", "date", "rounding", "all")


def noise(disguise, times=5):
    """Three hundred rows of pure noise, each several times; a copy differs from the others by its disguise."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 6)).round(4), rng.choice(["a", "b"], 300)
    start = datetime.date(2020, 1, 1)
    lines = ["x0,x1,x2,x3,x4,x5,patient,seen,y"]
    for copy in range(times):
        hidden = DISGUISES[copy] if disguise == "all" else disguise
        for row in range(300):
            form = SPELLINGS[copy] if hidden == "spelling" else SPELLINGS[0]
            cells = [form.format(value) for value in X[row]]
            if hidden == "rounding":
                cells = [repr(float(value * (1 + 1e-9 * rng.normal()))) for value in X[row]]
            patient = (row + 300 * copy * (hidden == "identifier")) * 37 % 10_007
            seen = start + datetime.timedelta(days=row + 400 * copy * (hidden == "date"))
            lines.append(",".join([*cells, str(patient), str(seen), y[row]]))
    order = 1 + rng.permutation(len(lines) - 1)
    return "\n".join([lines[0], *(lines[line] for line in order)]).encode()


@pytest.mark.fault("D26")
@pytest.mark.parametrize("disguise", DISGUISES)
def test_copies_of_noise_are_not_learned_by_heart(disguise):
    """Were a row's copy among those that judge the model, noise would be foretold with an accuracy near one."""
    model = TableModel("standard", max_epochs=200, hidden=(64, 64)).fit(read_table(noise(disguise)), "y")
    assert model.report.methods[0].accuracy.low < 0.55
    assert any("an earlier row" in note for note in model.notes)
    assert any("an earlier row" in note for note in model.report.notes)


@pytest.mark.fault("D26")
@pytest.mark.parametrize("disguise", ["none", "identifier", "rounding"])
@pytest.mark.parametrize("method", ["crossfit", "standard"])
def test_copies_in_an_array_are_warned_of_and_kept_together(disguise, method):
    table = read_table(noise(disguise))
    X = table.select(pl.col("^x.$", "patient").str.strip_chars().cast(pl.Float64)).to_numpy()
    _, row = np.unique(X[:, :6].round(6), axis=0, return_inverse=True)
    model = SelfCalibratedClassifier(method, max_epochs=60, hidden=(64, 64), network="mlp", random_state=0)
    with pytest.warns(UserWarning, match=r"1,200 of 1,500 rows .* an earlier row"):
        model.fit(X, table["y"].to_numpy())
    if method == "crossfit":
        right = model.classes_[model.out_of_fold_.argmax(axis=1)] == table["y"].to_numpy()
        assert right.mean() < 0.6
    else:
        trained = np.isin(np.arange(len(X)), model.train_rows_)
        assert not set(row[trained]) & set(row[~trained])


@pytest.mark.fault("D26")
def test_the_warning_is_the_note_of_the_command(tmp_path):
    table = pl.concat([people(), people().head(30)])
    told = as_json(*fit(tmp_path, table))["notes"]
    X = table.select("size", "weight", colour=pl.col("colour").rank("dense")).to_numpy()
    with pytest.warns(UserWarning, match="an earlier row") as warned:
        SelfCalibratedClassifier("standard", max_epochs=2, random_state=0).fit(X, table["kind"].to_numpy())
    assert told[0] in [str(one.message) for one in warned]


@pytest.mark.fault("D26")
@pytest.mark.parametrize("method", ["standard", "bo4sc", "temperature", "crossfit"])
def test_every_method_takes_groups(method):
    (X, y), groups = Blobs(std=1.7).sample(200, seed=0), np.arange(200) // 4
    model = SelfCalibratedClassifier(method, max_epochs=20, hidden=(8,), random_state=0)
    trained = np.isin(np.arange(200), model.fit(X, y, groups=groups).train_rows_)
    if method != "crossfit":
        assert 0 < trained.sum() < 200
        assert not set(groups[trained]) & set(groups[~trained])
    without = groups.astype(object)
    without[:100] = None  # each is a separate group
    own = np.r_[np.arange(1000, 1100), groups[100:]]
    np.testing.assert_array_equal(
        model.fit(X, y, groups=without).predict_proba(X), model.fit(X, y, groups=own).predict_proba(X)
    )


@pytest.mark.fault("D26")
def test_the_command_keeps_groups_together(tmp_path):
    rng = np.random.default_rng(0)
    who = pl.Series([f"p{i // 4}" for i in range(160)])
    result = succeed(*fit(tmp_path, people().with_columns(who=who), "--group", "who"))
    assert "note: Column 'who' is not used as a feature; rows with the same of its 40 values" in result.stderr
    model = TableModel.load(tmp_path / "m")
    assert "who" not in [column.name for column in model.schema.used]
    judged = TableModel().parts(people().with_columns(who=who), "kind", group="who").held_out
    assert set(np.bincount(judged // 4, minlength=40)) == {0, 4}
    table = people().with_columns(who=who, extra=pl.Series(rng.normal(size=160)))
    failed = run(*fit(tmp_path, table, "--group", "whom", "--force"))
    assert (failed.exit_code, "Did you mean 'who'?" in failed.stderr) == (3, True)


@pytest.mark.fault("D27")
def test_classes_are_in_one_order_in_every_process():
    program = (
        "import polars as pl; from selfcal.tabular.target import read_target;"
        "names = ['nan', 'inf', '1e3', '10', '2', 'NaN', '-inf', '-1.5', '999'];"
        "print(read_target(pl.DataFrame({'y': names * 3}), 'y').classes)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in range(4)
    }
    assert said == {"('-1.5', '2', '10', '999', '1e3', '-inf', 'NaN', 'inf', 'nan')"}


@pytest.mark.fault("D28")
def test_columns_that_give_the_target_away_are_told_before_training(tmp_path):
    rng = np.random.default_rng(0)
    table = people(400)
    kind = table["kind"].str.slice(1).cast(pl.Int64).to_numpy()
    levels = 3 * rng.integers(0, 4, 400) + kind  # twelve levels, each of one class
    table = table.with_columns(
        measured=pl.Series(kind + 0.05 * rng.normal(size=400)), code=pl.Series([f"code {v}" for v in levels])
    )
    result = succeed(*fit(tmp_path, table))
    for name in ("measured", "code"):
        assert f"note: Column {name!r} predicts the target 'kind' in " in result.stderr
        assert f"leave it out with --kind {name}=drop" in result.stderr
    for name in ("size", "colour", "weight"):
        assert f"Column {name!r} tells" not in result.stderr
    assert "predicts the target" in (tmp_path / "m" / "report.html").read_text()


@pytest.mark.fault("D33")
def test_a_target_of_decimals_is_refused_unless_asked_for(tmp_path):
    """Two hundred prices, each many times: far fewer than the rows, and still a quantity."""
    rng = np.random.default_rng(0)
    prices = pl.Series((rng.integers(1, 200, 4000) + 0.99).round(2))
    table = people(4000).with_columns(kind=prices)
    refused = run(*fit(tmp_path, table))
    assert refused.exit_code == 3
    assert "Column 'kind' must hold classes; it holds 199 distinct numbers such as" in refused.stderr
    assert "looks continuous" in refused.stderr
    assert os.listdir(tmp_path) == ["d.csv"]
    words = fit(tmp_path, table, "--max-epochs", "1", "--classes-anyway")
    assert len(as_json(*words)["classes"]) == 199
    with pytest.raises(ValueError, match=r"199 distinct numbers such as '1.99' and looks continuous"):
        SelfCalibratedClassifier("standard").fit(
            rng.normal(size=(4000, 2)), prices.cast(pl.String).to_numpy()
        )
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        SelfCalibratedClassifier("standard").fit(rng.normal(size=(4000, 2)), prices.to_numpy())
