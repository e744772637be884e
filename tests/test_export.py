import builtins
import json
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError
from selfcal.export import _head, _Pipeline, to_onnx

X, Y = Blobs(std=1.7).sample(300, seed=0)
NEW = np.concatenate([np.random.default_rng(0).normal(0, 8, size=(500, 2)), np.zeros((1, 2)), X])
FORMULAS = [
    "standard",
    "temperature",
    "ensemble_temperature",
    "vector",
    "matrix",
    "dirichlet",
    "platt",
    "beta",
]


def fitted(method, y=Y, **settings):
    model = SelfCalibratedClassifier(method, max_epochs=30, random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(1e3 + X, y)


def run(path, X):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"X": X})


MISSING = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
with_extra = pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}: pip install 'selfcal[export]'")


@with_extra
@pytest.mark.parametrize(
    ("method", "n_classes"), [*((method, 5) for method in FORMULAS), ("platt", 2), ("beta", 2)]
)
def test_the_same_probabilities_as_predict_proba(tmp_path, method, n_classes):
    model = fitted(method, Y % n_classes, hidden=(16,))
    path = to_onnx(model, tmp_path / "model.onnx")
    for rows in (1e3 + NEW, 1e3 + NEW[:1]):
        (probs,) = run(path, rows)
        np.testing.assert_allclose(probs, model.predict_proba(rows), rtol=0, atol=1e-5)
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize("method", [*FORMULAS, "attended_temperature", "bo4sc"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_formulas_before_they_are_written(method, n_classes):
    """Without the detour by a file, which takes a second, and closer."""
    model = fitted(method, Y % n_classes, hidden=(16,))
    rows = 1e3 + NEW
    with torch.no_grad():
        probs = _Pipeline(model, _head(model.calibrator_)).eval()(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(probs, model.predict_proba(rows), rtol=0, atol=1e-7)


@with_extra
@pytest.mark.parametrize("kind", ["tabular", "periodic", None], ids=str)
def test_committees(tmp_path, kind):
    """Encodings, weights and temperatures are all in the file."""
    model = fitted("auto" if kind is None else "crossfit", network=kind, hidden=(8,))
    path = to_onnx(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(run(path, 1e3 + NEW)[0], model.predict_proba(1e3 + NEW), rtol=0, atol=1e-5)


@with_extra
def test_a_network_of_ones_own_and_names_of_classes(tmp_path):
    def network(n_features, n_classes):
        return nn.Sequential(nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, n_classes))

    import onnx

    model = fitted("vector", np.array(["ä", "b", "c", "", "猫"])[Y], network=network)
    path = to_onnx(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(run(path, 1e3 + NEW)[0], model.predict_proba(1e3 + NEW), rtol=0, atol=1e-5)
    stored = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(stored["classes"]) == model.classes_.tolist()
    onnx.checker.check_model(onnx.load(path))


@pytest.mark.parametrize(
    "method", sorted({*recipes._POST_HOC, "isoreg"} - {*FORMULAS, "attended_temperature"})
)
def test_calibrators_that_are_no_formula_are_told(tmp_path, method):
    model = fitted(method)
    model.calibrator_.is_identity_ = False
    with pytest.raises(
        ConfigError, match=r"one of TemperatureScaling, .*BetaCalibration to be written as ONNX"
    ):
        to_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@with_extra
def test_a_fit_that_was_rolled_back_is_the_softmax(tmp_path):
    model = fitted("isotonic")
    model.calibrator_.is_identity_ = True
    np.testing.assert_allclose(
        run(to_onnx(model, tmp_path / "m.onnx"), NEW)[0], model.predict_proba(NEW), rtol=0, atol=1e-5
    )


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "onnx":
            raise ImportError("No module named 'onnx'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"No module named 'onnx'. Run: pip install 'selfcal\[export\]'"):
        to_onnx(fitted("standard"), tmp_path / "model.onnx")


def test_not_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        to_onnx(SelfCalibratedClassifier(), tmp_path / "model.onnx")
