import builtins
import warnings

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError

from selfcal import SelfCalibratedClassifier, calibrators, recipes
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError
from selfcal.models.trees import TreeColumns, Trees
from selfcal.storage.export import _Encoder, _formulas, _head, _Pipeline, to_onnx
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.preprocessing import Preprocessor

X, Y = Blobs(std=1.7).sample(300, seed=0)
NEW = np.concatenate([np.random.default_rng(0).normal(0, 8, size=(500, 2)), np.zeros((1, 2)), X])
FORMULAS = [
    "standard",
    "temperature",
    "ensemble_temperature",
    "smart",
    "vector",
    "matrix",
    "structured_matrix",
    "dirichlet",
    "platt",
    "beta",
]
STEPS = ["bbq", "field_aware", "histogram", "isoreg", "isotonic", "polynomial", "scaling_binning"]


def test_it_is_decided_for_every_calibrator_whether_it_can_be_exported():
    decided = {*FORMULAS, "attended_temperature", *STEPS} - {"standard"}
    assert decided == {*recipes.POST_HOC, "isoreg"}


def fitted(method, y=Y, **settings):
    model = SelfCalibratedClassifier(method, **{"max_epochs": 30, "random_state": 0, **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(1e3 + X, y)


PREDICTIVES = [
    "mc_dropout",
    "laplace",
    recipes.laplace(structure="full", predictive="probit"),
    recipes.laplace(predictive="probit"),
    "batch_ensemble",
    "feature_clipping",
]


@pytest.mark.parametrize("method", [*FORMULAS, "attended_temperature", "bo4sc", *PREDICTIVES], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_formulas_before_they_are_written(method, n_classes):
    """Without the detour by a file, which takes a second, and closer."""
    model = fitted(method, Y % n_classes, hidden=(16,))
    rows = 1e3 + NEW
    with torch.no_grad():
        probs = _Pipeline(model._state(), _head(model.calibrator_)).eval()(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(probs, model.predict_proba(rows), rtol=0, atol=1e-7)


def test_trees_before_they_are_written(monkeypatch):
    """In a trace they go another way, with the same result."""
    model = fitted("temperature", Y % 3)
    forest = RandomForestClassifier(5, random_state=0).fit(model._tensor(1e3 + X), Y % 3)
    model.module_ = Trees.of(forest, TreeColumns(2), 3)
    expected = model.predict_proba(1e3 + NEW)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.no_grad():
        probs = (
            _Pipeline(model._state(), _head(model.calibrator_)).eval()(torch.from_numpy(1e3 + NEW)).numpy()
        )
    np.testing.assert_allclose(probs, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", STEPS)
def test_calibrators_that_are_no_formula_are_told(tmp_path, method):
    model = fitted(method)
    model.calibrator_.is_identity_ = False
    with pytest.raises(ConfigError, match=r"one of SMART, .*VectorScaling to be written as ONNX"):
        to_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_every_calibrator_is_a_formula_or_known_to_be_none():
    """A new calibrator either says its formula or is listed here."""
    steps_and_fields = {type(recipes.named(name).calibrator).__name__ for name in STEPS}
    formulas = {kind.__name__ for kind in _formulas()}
    assert not formulas & steps_and_fields
    assert formulas | steps_and_fields == {*calibrators.__all__}
    methods = [recipes.named(name).calibrator for name in (*FORMULAS, "attended_temperature")]
    assert formulas == {type(calibrator).__name__ for calibrator in methods if calibrator is not None}


def test_a_class_that_derives_from_a_formula_is_none(tmp_path):
    class Twice(calibrators.TemperatureScaling):
        def _map(self, z):
            return super()._map(2 * z)

    with pytest.raises(ConfigError, match="to be written as ONNX; got Twice"):
        to_onnx(fitted(recipes.post_hoc(Twice())), tmp_path / "model.onnx")


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "onnx":
            raise ImportError("No module named 'onnx'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"No module named 'onnx'. Run: pip install 'selfcal\[export\]'"):
        to_onnx(fitted("standard"), tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "columns", [("size", "wet", "day"), ("colour", "town"), ("size", "day", "colour", "town")]
)
def test_the_encoder_is_the_preprocessor_from_numbers_on(columns):
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "size": np.where(rng.random(90) < 0.2, "NA", (1e6 * rng.normal(size=90)).round().astype(str)),
            "wet": rng.choice(["true", "false"], 90),
            "day": rng.choice(["2024-02-29", "2025-12-31", ""], 90),
            "colour": rng.choice(["red", "green", ""], 90),
            "town": rng.choice([f"t{i}" for i in range(9)], 90),
        }
    ).select(columns)
    kinds = {name: "category" for name in ("colour", "town") if name in columns}
    schema = infer_schema(table[:60], kinds=kinds, nonfinite="impute")
    preprocessor = Preprocessor(max_levels=5).fit(table[:60], schema)
    raw, _ = preprocessor._raw(table)
    assert raw.shape[1] == len(preprocessor.inputs)
    ours = _Encoder(preprocessor)(torch.from_numpy(raw)).numpy()
    np.testing.assert_allclose(ours, preprocessor.transform(table), rtol=0, atol=1e-12)
    if "size" in columns:
        raw[0, 0] = np.inf
        assert np.isfinite(_Encoder(preprocessor)(torch.from_numpy(raw[:1])).numpy()).all()


def test_not_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        to_onnx(SelfCalibratedClassifier(), tmp_path / "model.onnx")


def test_the_graph_of_a_classifier_fitted_on_a_data_frame():
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {"size": 1e4 * rng.normal(size=120), "colour": rng.choice(["red", "green", None], 120).tolist()}
    )
    clf = SelfCalibratedClassifier("standard", max_epochs=20, hidden=(5,), random_state=0)
    state = clf.fit(table, table["size"].to_numpy() > 0)._state()
    graph = torch.nn.Sequential(_Encoder(state.preprocessor), _Pipeline(state, _head(state.calibrator)))
    raw, _ = state.preprocessor._raw(table)
    found = graph.eval()(torch.from_numpy(raw)).detach().numpy()
    np.testing.assert_allclose(found, clf.predict_proba(table), rtol=0, atol=1e-5)
