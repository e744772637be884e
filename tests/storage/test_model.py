import hashlib
import json
import subprocess
import sys
import unicodedata
import warnings

import numpy as np
import pytest
import torch
from safetensors.numpy import load as load_tensors
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import selfcal
from selfcal import SelfCalibratedClassifier, calibrators, models, recipes
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, ModelFormatError, TrainingError, UnsealedModelWarning
from selfcal.models.spec import NETWORKS, maker_of, spec_of
from selfcal.storage import FORMAT_VERSION, describe, files, load_calibrator, read_extra, save_calibrator
from selfcal.storage.parts import restored_module, weights_of
from tests import stored_models
from tests.stored_models import changed

X, Y = Blobs(std=1.7).sample(120, seed=0)


def fitted(method="temperature", y=Y, **settings):
    model = SelfCalibratedClassifier(
        method, **{"hidden": (8,), "max_epochs": 4, "random_state": 0, **settings}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def outputs(model):
    return [model.logits(X), model.predict_proba(X), model.confidence(X), model.predict(X)]


def digest(model):
    """A hash of every output, bit for bit."""
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(part).tobytes() for part in outputs(model))
    ).hexdigest()


def same(first, second):
    for a, b in zip(outputs(first), outputs(second), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


IN_A_FRESH_PROCESS = """
import sys
import torch
torch.set_num_threads(1)
from selfcal import SelfCalibratedClassifier
from tests.storage.test_model import digest
for folder in sys.argv[1:]:
    print(digest(SelfCalibratedClassifier.load(folder)))
"""


@pytest.mark.slow
def test_every_method_predicts_the_same_bit_for_bit_in_a_fresh_process(tmp_path):
    known = {name: fitted(name, max_epochs=2) for name in recipes.names()}
    folders = [str(model.save(tmp_path / name)) for name, model in known.items()]
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS, *folders], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [digest(model) for model in known.values()]


@pytest.mark.slow
def test_an_ensemble_is_loaded_without_loading_half_of_torch(tmp_path):
    """Arithmetic on tensors without memory would: eight hundred modules, which take a second."""
    folder = fitted("auto").save(tmp_path / "model")
    code = """
import sys
from selfcal import SelfCalibratedClassifier
before = len(sys.modules)
SelfCalibratedClassifier.load(sys.argv[1])
print(len(sys.modules) - before)
"""
    ran = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 100


LABELS = {
    "str": np.array(["cat", "dog", "owl", "elk", "bee"]),
    "unicode": np.array(["", "a\nb", "\u202e\u05e9\u05dc\u05d5\u05dd", "👩‍👧", "\udcff" + "x" * 10_000]),
    "twins": np.array([*(unicodedata.normalize(form, "é" * n) for n in (1, 2) for form in ("NFC", "NFD")), "e"]),
    "object": np.array(["cat", "dog", "owl", "elk", "ends in nul\0"], dtype=object),
    "big int": np.array([10**30, -(10**25), 1, 2, 3], dtype=object),
    "int64": np.array([10, -3, 7, 2**62, 0]),
    "int8": np.array([10, -3, 7, 2, 0], dtype=np.int8),
    "uint64": np.array([10, 3, 7, 2, 2**64 - 1], dtype=np.uint64),
    "float64": np.array([1.0, 0.0, 5.0, 3.0, 2e300]),
    "float16": np.array([1.0, 0.0, 5.0, 3.0, 2.0], dtype=np.float16),
    "bool": np.array([True, False, False, True, False]),
}  # fmt: skip


@pytest.mark.parametrize("names", LABELS.values(), ids=LABELS.keys())
def test_classes_keep_their_exact_type_and_bytes(tmp_path, names):
    model = fitted("standard")
    model.classes_ = np.unique(names)
    model.module_ = models.mlp(2, len(model.classes_))
    again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
    assert again.classes_.dtype.kind == model.classes_.dtype.kind
    assert [(type(v), v) for v in again.classes_.tolist()] == [(type(v), v) for v in model.classes_.tolist()]
    same(model, again)


def test_classes_that_are_no_plain_values_are_refused(tmp_path):
    model = fitted("standard")
    model.classes_ = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    with pytest.raises(ConfigError, match="Classes must be strings, numbers or booleans to be stored; got"):
        model.save(tmp_path / "model")


def test_all_that_prediction_needs_and_nothing_else_comes_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["größe", "Ω"])
    model = fitted(batch_size=np.int64(32), hidden=np.array([3, 4]), learning_rate=np.float32(0.01))
    model.fit(frame, Y)
    again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
    assert again.get_params() == {**model.get_params(), "hidden": (3, 4)}
    assert again.feature_names_in_.tolist() == ["größe", "Ω"]
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    for name in ("n_features_in_", "n_iter_", "best_iter_", "data_fingerprint_", "method_"):
        assert repr(getattr(again, name)) == repr(getattr(model, name)), name
    assert not hasattr(again, "history_")
    with pytest.raises(NotFittedError):
        clone(again).predict(frame)
    assert digest_of_refit(again) == digest_of_refit(model)


def digest_of_refit(model):
    return digest(clone(model).fit(X, Y))


@pytest.mark.parametrize("method", ["bo4sc", "gamma_net_sece", "ce_dece", "platt"])
def test_what_only_training_needs_is_absent(tmp_path, method):
    model = fitted(method)
    folder = model.save(tmp_path / "model")
    stored = load_tensors((folder / "model.safetensors").read_bytes())
    network = {f"network.{name}" for name in model.module_.state_dict()}
    curves = {"calibrator.curves_.slope", "calibrator.curves_.intercept"} if method == "platt" else set()
    assert {*stored} == network | {"scaling.mean", "scaling.scale"} | curves
    assert sorted(p.name for p in folder.iterdir()) == ["model.json", "model.safetensors"]
    assert not hasattr(SelfCalibratedClassifier.load(folder), "sample_weights_")


def test_where_and_how_loudly_a_fit_ran_is_not_stored(tmp_path):
    model = fitted("standard", checkpoint_dir=tmp_path / "checkpoints", verbose=False)
    again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
    assert again.checkpoint_dir is None
    assert again.verbose is None
    assert model.verbose is False
    same(model, again)


def test_the_same_model_has_the_same_bytes_also_when_saved_again(tmp_path):
    folders = [fitted("isotonic").save(tmp_path / name) for name in "ab"]
    folders.append(SelfCalibratedClassifier.load(folders[0]).save(tmp_path / "c"))
    for name in ("model.json", "model.safetensors"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1


class TestRecipes:
    def test_one_with_default_settings_is_known_by_its_name(self, tmp_path):
        again = SelfCalibratedClassifier.load(fitted(recipes.bo4sc()).save(tmp_path / "model"))
        assert again.method == "bo4sc"
        assert repr(again.method_) == repr(recipes.bo4sc())

    @pytest.mark.parametrize("recipe", [recipes.bo4sc(outer_lr=0.1), recipes.focal(gamma=3.0)])
    def test_others_are_read_but_not_trained_again_as_something_else(self, tmp_path, recipe):
        model = fitted(recipe)
        folder = model.save(tmp_path / "model")
        assert describe(folder)["recipe"] == {"name": recipe.name, "repr": repr(recipe)}
        again = SelfCalibratedClassifier.load(folder)
        same(model, again)
        with pytest.raises(ConfigError, match=r"method must be one of .*got \"?'?Recipe\(name="):
            again.fit(X, Y)

    @pytest.mark.parametrize("settings", [{"n_networks": 1}, {"noisy_labels": True}])
    def test_an_ensemble_with_other_candidates_is_read_with_settings_for_ensembles(self, tmp_path, settings):
        model = fitted(recipes.auto(candidates=["linear", "mlp"], folds=3), **settings)
        same(model, SelfCalibratedClassifier.load(model.save(tmp_path / "model")))


def two_layers(n_features, n_classes):
    return nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, n_classes))


class TestNetworks:
    @pytest.mark.parametrize("name", NETWORKS)
    def test_ours_are_made_again_from_name_and_arguments(self, name):
        for_table = name in ("discriminant", "mlp", "realmlp", "tabm", "tabular")
        layers = {"quadratic": True} if name == "discriminant" else {"hidden": (5, 3)}
        settings = {"n_features": 7} | layers if for_table else {"width": 2, "channels": 1}
        module = getattr(models, name)(n_classes=3, **settings)
        x = torch.rand(4, 7) if for_table else torch.rand(4, 1, 28, 28)
        module.train()(x)  # moves the running means of batch normalisation
        weights = {key.removeprefix("network."): v for key, v in weights_of(module).items()}
        stored = json.loads(json.dumps(spec_of(module) | {"default": False}))
        again = restored_module(stored, (7, 3), weights, None)
        assert torch.equal(module.eval()(x), again.eval()(x))
        assert repr(maker_of(again)(7, 3)) == repr(module)

    @pytest.mark.parametrize("kind", models.FOR_TABLES)
    def test_a_kind_is_known_by_its_name(self, tmp_path, kind):
        model = fitted("standard", network=kind)
        again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
        assert again.network == kind
        same(model, again)
        same(clone(again).fit(X, Y), model)

    @pytest.mark.parametrize("method", ["crossfit", "ensemble", "auto"])
    def test_a_committee_with_what_was_tried(self, tmp_path, method):
        model = fitted(method)
        again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
        told = [{name: v for name, v in record.items() if name != "seconds"} for record in model.selection_]
        assert again.selection_ == told
        assert again.network is None
        assert repr(again.module_) == repr(model.module_)
        assert not hasattr(again, "out_of_fold_")
        same(model, again)
        same(clone(again).fit(X, Y), model)

    def test_a_committee_of_ones_own_networks_is_stored_by_its_weights_alone(self, tmp_path):
        model = fitted("crossfit", network=nn.Linear)
        with pytest.raises(ConfigError, match="since code is not stored with a model"):
            model.save(tmp_path / "model")
        folder = model.save(tmp_path / "model", own_network=True)
        same(model, SelfCalibratedClassifier.load(folder, network=nn.Linear))
        with pytest.raises(ConfigError, match="network must make the network that was saved"):
            SelfCalibratedClassifier.load(folder, network=two_layers)

    @pytest.mark.parametrize("n_networks", [None, 1])
    def test_own_networks_corrected_for_wrong_labels(self, tmp_path, n_networks):
        model = fitted("crossfit", network=nn.Linear, noisy_labels=True, n_networks=n_networks)
        folder = model.save(tmp_path / "model", own_network=True)
        again = SelfCalibratedClassifier.load(folder, network=nn.Linear)
        assert repr(again.module_) == repr(model.module_)
        same(model, again)

    def test_a_committee_of_networks_that_ones_own_function_had_from_us(self, tmp_path):
        model = fitted("crossfit", network=lambda n, k: models.mlp(n, k, hidden=(6,)))
        again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
        same(model, again)
        same(clone(again).fit(X, Y), model)

    def test_a_function_that_returns_one_of_ours_can_be_stored(self, tmp_path):
        model = fitted(network=lambda n, k: models.mlp(n, k, hidden=(6,), dropout=0.5))
        again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
        same(model, again)
        assert repr(again.network(3, 2)) == repr(models.mlp(3, 2, hidden=(6,), dropout=0.5))

    def test_code_is_not_stored_and_the_way_round_is_told(self, tmp_path):
        model = fitted(network=two_layers)
        with pytest.raises(ConfigError, match=r"own_network=True.*load\(path, network=\.\.\.\)"):
            model.save(tmp_path / "model")
        folder = model.save(tmp_path / "model", own_network=True)
        same(model, SelfCalibratedClassifier.load(folder, network=two_layers))
        with pytest.raises(ModelFormatError, match=r"Pass the function that makes it: load\(path, network="):
            SelfCalibratedClassifier.load(folder)
        with pytest.raises(
            ConfigError, match=r"the network that was saved.*'0.bias' must be absent; got \(\(4,\)"
        ):
            SelfCalibratedClassifier.load(folder, network=nn.Linear)
        with pytest.raises(ConfigError, match="network must take 2 features and 5 classes: division by zero"):
            SelfCalibratedClassifier.load(folder, network=lambda n, k: n / 0)
        with pytest.raises(ConfigError, match="it returned 'net'"):
            SelfCalibratedClassifier.load(folder, network=lambda n, k: "net")

    def test_one_of_ours_that_was_changed_is_no_longer_ours(self, tmp_path):
        def with_tanh(n_features, n_classes):
            module = models.mlp(n_features, n_classes, hidden=(4,))
            module[1] = nn.Tanh()
            return module

        with pytest.raises(ConfigError, match="own_network=True"):
            fitted(network=with_tanh).save(tmp_path / "model")

    def test_a_function_that_is_not_needed(self, tmp_path):
        with pytest.raises(ConfigError, match="network must be left out"):
            SelfCalibratedClassifier.load(fitted().save(tmp_path / "model"), network=two_layers)

    def test_random_streams_stay_where_they_are(self, tmp_path):
        folder = fitted(network=two_layers).save(tmp_path / "model", own_network=True)
        before = torch.get_rng_state()
        SelfCalibratedClassifier.load(folder, network=two_layers)
        assert torch.equal(torch.get_rng_state(), before)

    def test_nan_is_not_saved(self, tmp_path):
        model = fitted()
        next(model.module_.parameters()).data.fill_(float("nan"))
        with pytest.raises(TrainingError, match=r"must not hold NaN to be saved; '0\.weight' does"):
            model.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()


def test_a_calibrator_of_ones_own_is_refused(tmp_path):
    class TemperatureScaling(calibrators.TemperatureScaling):
        pass

    with pytest.raises(
        ConfigError, match=r"must be one of BBQ, SMART, AttendedTemperatureScaling.*to be stored"
    ):
        fitted(recipes.post_hoc(TemperatureScaling())).save(tmp_path / "model")


@pytest.mark.parametrize("name", calibrators.__all__)
def test_every_calibrator_is_stored_without_a_model(tmp_path, name):
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, size=(200, 3))
    y = (z + 2 * rng.gumbel(size=z.shape)).argmax(axis=1)
    calibrator = getattr(calibrators, name)().fit(z, y)
    folder = save_calibrator(calibrator, tmp_path / "model", classes=["a", "b", "c"], metrics={"ece": 0.1})
    again, classes = load_calibrator(folder)
    assert classes.tolist() == ["a", "b", "c"]
    assert describe(folder)["metrics"] == {"ece": 0.1}
    for method in ("predict", "predict_proba", "confidence"):
        np.testing.assert_array_equal(
            getattr(again, method)(3 * z), getattr(calibrator, method)(3 * z), strict=True
        )


def test_a_calibrator_of_other_classes(tmp_path):
    calibrator = calibrators.TemperatureScaling().fit([[1.0, 0.0]] * 3, [0, 0, 1])
    folder = save_calibrator(calibrator, tmp_path / "model", classes=[0, 1, 2])
    with pytest.raises(ModelFormatError, match="must have 2 columns as in fit; got 3"):
        load_calibrator(folder)


def test_metrics_and_further_files_are_kept(tmp_path, monkeypatch):
    metrics = {"ece": np.float64(0.1), "counts": np.array([1, 2]), "auc": float("nan"), "by": {"site": [0.5]}}
    extras = {"report.html": b"<html>", "model_card.md": "Müll".encode(), "preprocessor.skops": b"PK\3\4..."}
    folder = fitted().save(tmp_path / "model", metrics=metrics, extras=extras)
    assert describe(folder)["metrics"] == {"ece": 0.1, "counts": [1, 2], "auc": None, "by": {"site": [0.5]}}
    assert {name: read_extra(folder, name) for name in extras} == extras
    (folder / "report.html").write_bytes(b"<HTML>")
    with pytest.raises(ModelFormatError, match=r"report\.html is damaged: its SHA-256"):
        read_extra(folder, "report.html")
    fitted().save(folder)
    assert read_extra(folder, "report.html") is None
    assert not (folder / "report.html").exists()
    monkeypatch.setattr(files, "MAX_EXTRA_BYTES", 2)
    with pytest.raises(ConfigError, match=r"report\.html may have at most 2 bytes; it has 6"):
        fitted().save(folder, extras={"report.html": b"<html>"})
    with pytest.raises(ConfigError, match=r"A model may come with .*got '\.\./evil'"):
        fitted().save(folder, extras={"../evil": b""})
    with pytest.raises(ConfigError, match="Only numbers, words, lists and dictionaries"):
        fitted().save(folder, metrics={"model": nn.Linear(1, 1)})


def test_a_model_that_is_not_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        SelfCalibratedClassifier().save(tmp_path / "model")


OLD = sorted(p for p in stored_models.FOLDER.glob("*/*") if p.is_dir())


class TestVersions:
    @pytest.mark.parametrize("folder", OLD, ids=[f"{p.parent.name}-{p.name}" for p in OLD])
    def test_models_of_every_version_are_read(self, folder):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model = SelfCalibratedClassifier.load(folder)
        unsealed = b'"format_version": 1' in (folder / "model.json").read_bytes()
        assert [w.category for w in warned] == [UnsealedModelWarning] * unsealed
        expected = json.loads((folder.parent / f"{folder.name}.expected.json").read_text())
        found = stored_models.outputs(model)
        for name in ("logits", "predict_proba", "confidence"):
            np.testing.assert_allclose(found.pop(name), expected.pop(name), rtol=1e-4, atol=1e-4)
        assert found == expected

    def test_this_version_is_among_them(self):
        assert {p.name for p in (stored_models.FOLDER / selfcal.__version__).iterdir() if p.is_dir()} == {
            *stored_models.MODELS
        }

    def test_a_later_format_is_refused_by_name(self, tmp_path):
        folder = fitted().save(tmp_path / "model")
        changed(
            folder, lambda d: d.update(format_version=FORMAT_VERSION + 1, selfcal_version="7.0.1", settings=3)
        )
        message = (
            f"by selfcal 7.0.1 in format 3; this is selfcal {selfcal.__version__}, which reads formats 1 to 2"
        )
        with pytest.raises(ModelFormatError, match=message) as caught:
            SelfCalibratedClassifier.load(folder)
        assert caught.value.exit_code == 5

    def test_settings_that_came_later_have_their_defaults(self, tmp_path):
        model = fitted()
        folder = changed(model.save(tmp_path / "model"), lambda d: d["settings"].pop("patience"))
        again = SelfCalibratedClassifier.load(folder)
        assert again.patience == 10
        same(model, again)


def test_another_kind_of_model(tmp_path):
    folder = changed(fitted().save(tmp_path / "model"), lambda d: d.update(kind="Forest"))
    with pytest.raises(ModelFormatError, match="must hold a SelfCalibratedClassifier; it holds 'Forest'"):
        SelfCalibratedClassifier.load(folder)
