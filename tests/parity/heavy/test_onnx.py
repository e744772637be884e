"""Exported models in onnxruntime, to 1e-5 the probabilities that selfcal gives."""

import json
import warnings

import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest
from torch import nn

from selfcal import SelfCalibratedClassifier
from selfcal.ensembles.modules import EnsembleModule
from selfcal.models import FOR_TABLES
from selfcal.models.trees import Trees
from selfcal.storage.export import to_onnx
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import QUICK, as_json, people, run, succeed
from tests.models.test_trees import CLASSIFIERS, COLUMNS, encoded, labels
from tests.storage.test_export import FORMULAS, NEW, PREDICTIVES, Y, fitted


def answers(path, X):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"X": X})


@pytest.mark.parametrize(
    ("method", "n_classes"),
    [*((method, 5) for method in (*FORMULAS, *PREDICTIVES)), ("platt", 2), ("beta", 2)],
    ids=str,
)
def test_the_same_probabilities_as_predict_proba(tmp_path, method, n_classes):
    model = fitted(method, Y % n_classes, hidden=(16,))
    path = to_onnx(model, tmp_path / "model.onnx")
    for rows in (1e3 + NEW, 1e3 + NEW[:1]):
        (probs,) = answers(path, rows)
        np.testing.assert_allclose(probs, model.predict_proba(rows), rtol=0, atol=1e-5)
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize(
    "settings", [*({"network": kind} for kind in FOR_TABLES), {"noisy_labels": True}], ids=str
)
def test_committees(tmp_path, settings):
    """Encodings, weights, temperatures and what undoes noise are all in the file."""
    model = fitted("crossfit" if "network" in settings else "auto", hidden=(8,), **settings)
    path = to_onnx(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(answers(path, 1e3 + NEW)[0], model.predict_proba(1e3 + NEW), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "wrap",
    [lambda trees: trees[0], lambda trees: trees[1], lambda trees: EnsembleModule(trees, [1, 2], [1, 0.7])],
    ids=["boosting", "forest", "ensemble"],
)
def test_trees(tmp_path, wrap):
    """Missing values and categories as well; the comparisons are the same, so the probabilities are closer."""
    x = encoded(0)
    model = SelfCalibratedClassifier("standard", standardize=False, max_epochs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x.numpy(), labels(x, 3))
    trees = [
        Trees.of(CLASSIFIERS[name].fit(COLUMNS(x).numpy(), labels(x, 3)), COLUMNS, 3)
        for name in ("boosting", "random forest")
    ]
    model.module_ = wrap(trees).eval()
    path = to_onnx(model, tmp_path / "model.onnx")
    for rows in (x, encoded(1), encoded(2, n=1)):
        (probs,) = answers(path, rows.double().numpy())
        np.testing.assert_allclose(probs, model.predict_proba(rows.numpy()), rtol=0, atol=1e-6)


def test_a_network_of_ones_own_and_names_of_classes(tmp_path):
    def network(n_features, n_classes):
        return nn.Sequential(nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, n_classes))

    classes = np.array(["ä", "b", "c", "", "猫"])
    # trained to the end: a calibrator that must stretch the logits stretches their rounding, too
    model = fitted("vector", classes[Y], network=network, max_epochs=100)
    path = to_onnx(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(answers(path, 1e3 + NEW)[0], model.predict_proba(1e3 + NEW), rtol=0, atol=1e-5)
    stored = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(stored["classes"]) == model.classes_.tolist()
    onnx.checker.check_model(onnx.load(path))


def test_a_fit_that_was_rolled_back_is_the_softmax(tmp_path):
    model = fitted("isotonic")
    model.calibrator_.is_identity_ = True
    np.testing.assert_allclose(
        answers(to_onnx(model, tmp_path / "m.onnx"), NEW)[0], model.predict_proba(NEW), rtol=0, atol=1e-5
    )


def test_a_file_and_its_metadata_are_enough_for_the_same_probabilities(tmp_path):
    """Rows are made as a program without selfcal would make them: from the names and lists in the file."""
    table = people().with_columns(
        pl.when(pl.int_range(pl.len()) % 7 > 0).then("weight"), wet=pl.col("size") > 1
    )
    table.write_csv(tmp_path / "people.csv")
    model = tmp_path / "model"
    succeed("fit", tmp_path / "people.csv", "--target", "kind", "--out", model, "--method", "temperature")
    shown = succeed("export", model, "--onnx", tmp_path / "people.onnx").stdout
    for line in ("X: float64", "4 columns", "colour: 0 = blue, 1 = green, 2 = red", "class: k0, k1, k2"):
        assert line in shown
    session = onnxruntime.InferenceSession(tmp_path / "people.onnx", providers=["CPUExecutionProvider"])
    inputs = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    new = pl.concat([table.with_columns(pl.col("wet").cast(pl.String)), odd_rows()], how="diagonal_relaxed")
    X = np.empty((new.height, len(inputs)))
    for place, column in enumerate(inputs):
        cells = new[column["name"]].to_list()
        if "categories" in column:
            X[:, place] = [code(column["categories"], cell) for cell in cells]
        else:
            X[:, place] = [{"true": 1, "false": 0, None: np.nan}.get(cell, cell) for cell in cells]
    (probs,) = answers(tmp_path / "people.onnx", X)
    np.testing.assert_allclose(probs, TableModel.load(model).predict(new).probs, rtol=0, atol=1e-5)


def odd_rows():
    return pl.DataFrame(
        {"size": [None, 1e9], "colour": ["violet", None], "weight": [None, 0.0], "wet": ["true", None]}
    )


def code(categories, cell):
    name = "(missing)" if cell is None else cell
    other = categories.index("(other)") if "(other)" in categories and cell is not None else -1
    return categories.index(name) if name in categories else other


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    people().write_csv(folder / "people.csv")
    succeed("fit", folder / "people.csv", "--target", "kind", "--out", folder / "model", *QUICK)
    return folder / "model"


def test_what_is_there_is_replaced_only_when_asked(model, tmp_path):
    out = tmp_path / "model.onnx"
    out.write_text("mine")
    refused = run("export", model, "--onnx", out)
    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert "--force" in refused.stderr
    said = as_json("export", model, "--onnx", out, "--force")
    assert said["bytes"] == out.stat().st_size > 1000
    assert [column["name"] for column in said["inputs"]] == ["size", "weight", "colour"]
    assert said["classes"] == ["k0", "k1", "k2"]
    assert list(tmp_path.iterdir()) == [out]


def test_a_place_that_cannot_be_written_to(model, tmp_path):
    (tmp_path / "file").write_text("")
    for out, code in ((tmp_path, 2), (tmp_path / "file" / "model.onnx", 6)):
        result = run("export", model, "--onnx", out)
        assert (result.exit_code, result.stderr.count("error:")) == (code, 1), result.stderr
