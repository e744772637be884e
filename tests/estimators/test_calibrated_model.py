import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC
from torch import nn

from selfcal import CalibratedModel, Predictions, SelfCalibratedClassifier, metrics, models
from selfcal.calibrators import IsotonicConfidence, TemperatureScaling
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, DataError, ModelFormatError

NAMES = np.array(["ant", "bee", "cat", "dog", "eel"])


@pytest.fixture(scope="module")
def data():
    X, y = Blobs(std=1.7).sample(1500, seed=0)
    names = NAMES[y]
    return {part: (X[rows], names[rows]) for part, rows in
            {"train": slice(0, 500), "cal": slice(500, 1000), "test": slice(1000, None)}.items()}  # fmt: skip


def mostly(choices, rate=0.2):
    """These choices, but for a share that is rotated: labels that a model with such choices gets mostly right."""
    wrong = np.random.default_rng(0).random(len(choices)) < rate
    return np.where(wrong, np.roll(choices, 1), choices)


def codes_of(module, X):
    with torch.no_grad():
        return mostly(module.eval()(torch.as_tensor(X, dtype=torch.float32)).argmax(dim=1).numpy())


def overfitted():
    return RandomForestClassifier(30, min_samples_leaf=1, random_state=0)


def test_probabilities_get_better_and_the_model_stays_as_it_is(data):
    forest = overfitted().fit(*data["train"])
    before = forest.predict_proba(data["test"][0])
    model = CalibratedModel(forest).fit(*data["cal"])
    X, y = data["test"]
    after = model.predict_proba(X)
    losses = [metrics.log_loss(y, p, classes=forest.classes_) for p in (before, after)]
    assert losses[1] < losses[0]
    np.testing.assert_array_equal(forest.predict_proba(X), before)
    np.testing.assert_array_equal(model.classes_, NAMES)
    assert (
        model.predict(X) == forest.predict(X)
    ).mean() > 0.99  # a tie among trees may be broken by rounding
    np.testing.assert_allclose(model.confidence(X), after.max(axis=1))
    assert model.score(X, y) == pytest.approx(Predictions.of(model, X, y).correct.mean())


def test_logits_are_the_logarithms_of_the_probabilities(data):
    linear = LogisticRegression().fit(*data["train"])
    X, y = data["cal"]
    model = CalibratedModel(linear).fit(X, y)
    by_hand = TemperatureScaling().fit(np.log(linear.predict_proba(X)), y, classes=NAMES)
    assert model.calibrator_.temperature_ == pytest.approx(by_hand.temperature_, rel=1e-9)


@pytest.mark.parametrize("make", [LinearSVC, RidgeClassifier])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_decision_function_will_do(data, make, n_classes):
    (X, y), (X_cal, y_cal) = data["train"], data["cal"]
    few, few_cal = np.isin(y, NAMES[:n_classes]), np.isin(y_cal, NAMES[:n_classes])
    model = make().fit(X[few], y[few])
    calibrated = CalibratedModel(model).fit(X_cal[few_cal], mostly(y_cal[few_cal]))
    np.testing.assert_array_equal(calibrated.predict(X_cal), model.predict(X_cal))
    assert calibrated.predict_proba(X_cal).shape == (len(X_cal), n_classes)


def test_a_torch_module_keeps_its_mode_its_buffers_and_its_parameters(data):
    torch.manual_seed(0)
    module = nn.Sequential(models.mlp(2, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    X, _ = data["cal"]
    y = NAMES[codes_of(module, X)]
    module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = CalibratedModel(module, classes=NAMES).fit(X, y)
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert set(model.predict(X)) <= set(NAMES)
    first = model.predict_proba(torch.as_tensor(X[:3]))
    np.testing.assert_allclose(first, model.predict_proba(X)[:3], rtol=1e-5)


def test_a_module_without_names_has_codes_as_classes(data):
    X, _ = data["cal"]
    module = models.mlp(2, 5)
    model = CalibratedModel(module).fit(X, codes_of(module, X))
    np.testing.assert_array_equal(model.classes_, np.arange(5))


def test_images_reach_the_module_in_their_shape_and_its_precision():
    images = np.random.default_rng(0).random((300, 1, 4, 4))
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    y, seen = codes_of(module, images), []
    module.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    CalibratedModel(module).fit(images, y)
    assert {x.shape[1:] for x in seen} == {(1, 4, 4)}
    assert {x.dtype for x in seen} == {torch.float32}


def test_whole_numbers_stay_whole():
    words = np.arange(600).reshape(300, 2) % 9
    module = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(6, 3))
    with torch.no_grad():
        y = mostly(module(torch.as_tensor(words)).argmax(dim=1).numpy())
    assert CalibratedModel(module).fit(words, y).predict_proba([[1, 2]]).shape == (1, 3)


def test_our_own_classifier_is_calibrated_from_its_logits(data):
    clf = SelfCalibratedClassifier("standard", max_epochs=20, random_state=0).fit(*data["train"])
    model = CalibratedModel(clf, IsotonicConfidence(floor="chance")).fit(*data["cal"])
    X = data["test"][0]
    expected = IsotonicConfidence(floor="chance").fit(
        clf.logits(data["cal"][0]), np.searchsorted(NAMES, data["cal"][1])
    )
    np.testing.assert_array_equal(model.confidence(X), expected.confidence(clf.logits(X)))


def test_weights_reach_the_calibrator(data):
    X, y = data["cal"]
    forest = overfitted().fit(*data["train"])
    weight = np.arange(len(y)) % 3
    weighted = CalibratedModel(forest).fit(X, y, weight)
    repeated = CalibratedModel(forest).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.calibrator_.temperature_ == pytest.approx(repeated.calibrator_.temperature_, rel=1e-8)


def test_a_clone_keeps_the_model_and_forgets_the_calibration(data):
    model = CalibratedModel(overfitted().fit(*data["train"]), TemperatureScaling()).fit(*data["cal"])
    copy = clone(model)
    assert copy.estimator is model.estimator
    with pytest.raises(NotFittedError):
        copy.predict(data["test"][0])
    np.testing.assert_array_equal(
        copy.fit(*data["cal"]).predict_proba(X := data["test"][0]), model.predict_proba(X)
    )


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (overfitted(), {}, "must be a fitted classifier or a torch module"),
        ("forest", {}, "must be a fitted classifier or a torch module"),
        (
            models.mlp(2, 5),
            {"calibrator": "temperature"},
            r"such as TemperatureScaling\(\); got 'temperature'",
        ),
    ],
)
def test_what_cannot_be_calibrated_is_told(data, estimator, options, message):
    with pytest.raises(ConfigError, match=message):
        CalibratedModel(estimator, **options).fit(*data["cal"])


def test_wrong_data_is_told(data):
    X, y = data["cal"]
    forest = overfitted().fit(*data["train"])
    with pytest.raises(DataError, match="row 0 is 'yak'"):
        CalibratedModel(forest).fit(X, np.where(np.arange(len(y)) == 0, "yak", y))
    with pytest.raises(ConfigError, match="has its own classes"):
        CalibratedModel(forest, classes=NAMES).fit(X, y)
    broken = models.mlp(2, 5)
    next(broken.parameters()).data.fill_(float("nan"))
    with pytest.raises(DataError, match="The module's output must be finite; row 0"):
        CalibratedModel(broken).fit(X, np.zeros(len(y), dtype=int))


@pytest.mark.parametrize("estimator", ["forest", "module"])
def test_the_calibrator_is_stored_and_the_model_stays_with_its_owner(data, tmp_path, estimator):
    X, y = data["cal"]
    model = overfitted().fit(*data["train"]) if estimator == "forest" else models.mlp(2, 5)
    classes = None if estimator == "forest" else NAMES
    y = y if estimator == "forest" else NAMES[codes_of(model, X)]
    fitted = CalibratedModel(model, IsotonicConfidence(), classes=classes).fit(X, y)
    folder = fitted.save(tmp_path / "model", metrics={"rows": len(X)})
    again = CalibratedModel.load(folder, model)
    for method in ("predict", "predict_proba", "confidence"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(fitted, method)(X), strict=True)
    np.testing.assert_array_equal(clone(again).fit(X, y).predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(ConfigError, match="estimator must have the classes"):
        CalibratedModel.load(folder, LogisticRegression().fit(X, np.arange(len(X)) % 3))
    with pytest.raises(ModelFormatError, match="must hold a SelfCalibratedClassifier; it holds 'Calibrator'"):
        SelfCalibratedClassifier.load(folder)
