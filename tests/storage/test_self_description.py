"""A contract for every module that describes itself: spec -> JSON -> module -> the same logits, bit for bit."""

import inspect
import json
import pkgutil
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

import selfcal
from selfcal import SelfCalibratedClassifier, models
from selfcal.ensembles.modules import EnsembleModule, LogarithmicPool
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.label_noise.corrected import NoiseCorrected
from selfcal.models.spec import MAX_DEPTH, NETWORKS, Builder, Wrapper, has_own, spec_of, summary_of, wrappers
from selfcal.models.trees import TreeColumns, Trees
from selfcal.predictive import LastLayerLaplace, MonteCarloDropout
from selfcal.predictive.clipping import ClippedFeatures
from selfcal.predictive.laplace import LaplaceModule
from selfcal.predictive.mc_dropout import DropoutPasses
from selfcal.storage.parts import restored_module, weights_of
from selfcal.tabular.features import FeatureGroups
from tests.storage.test_model import fitted, same, two_layers
from tests.stored_models import changed

SIZES = N_FEATURES, N_CLASSES = 7, 3


class Sharpened(Wrapper, key="sharpened"):
    """A wrapper that nothing outside this file knows of: with a setting and a tensor of its own."""

    def __init__(self, network, n_classes, *, power=1):
        super().__init__()
        self.network = network
        self.power = power
        self.register_buffer("shift", torch.zeros(n_classes))

    def forward(self, x):
        return self.power * self.network(x) + self.shift

    def spec(self):
        return {"network": spec_of(self.network), "power": self.power}

    @classmethod
    def from_spec(cls, value, build):
        return cls(build(value["network"]), build.n_classes, power=value["power"])


def network(name="mlp"):
    settings = {"n_features": N_FEATURES, "hidden": (5, 4), "width": 2, "channels": 1}
    make = getattr(models, name)
    known = inspect.signature(make).parameters
    return make(n_classes=N_CLASSES, **{key: value for key, value in settings.items() if key in known})


def ensemble(*members):
    return EnsembleModule(members, range(1, len(members) + 1), [0.5] * len(members), temperature=0.8)


def corrected(inside, n_classes=N_CLASSES):
    return NoiseCorrected(inside, torch.eye(n_classes) * 1.2 - 0.2 / n_classes, 1.5)


def sharpened(inside, n_classes=N_CLASSES):
    module = Sharpened(inside, n_classes, power=3)
    module.shift.copy_(torch.linspace(-1, 1, n_classes))
    return module


def boosting():
    """With each kind of split: of a number that can be missing, of a category, and of a plain number."""
    columns = TreeColumns(N_FEATURES, FeatureGroups(missing=((0, 2),), categories=((3, 6),)))
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=(90, 2)), rng.random(90) < 0.2, np.eye(3)[rng.integers(3, size=90)]])
    rows = torch.tensor(np.column_stack([x, rng.normal(size=90)]), dtype=torch.float32)
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features=columns.categorical)
    return Trees.of(model.fit(columns(rows).numpy(), rng.integers(3, size=90)), columns, N_CLASSES)


def predicting(part, inside):
    """A network with another predictive, fitted on rows whose labels do not matter."""
    rows = torch.randn(20, N_FEATURES, generator=torch.Generator().manual_seed(0))
    return part.fit(inside, (rows, torch.arange(20) % N_CLASSES))


WRAPPED = {
    EnsembleModule: lambda: ensemble(network(), network("tabular")),
    LogarithmicPool: lambda: LogarithmicPool([network(), ensemble(network("tabular"))], [0.7, 0.6]),
    NoiseCorrected: lambda: corrected(network()),
    Trees: boosting,
    ClippedFeatures: lambda: ClippedFeatures(network("tabular"), 0.1),
    Sharpened: lambda: sharpened(network()),
    DropoutPasses: lambda: predicting(MonteCarloDropout(passes=3), network("tabular")),
    LaplaceModule: lambda: predicting(LastLayerLaplace(), network()),
}
DESCRIBED = {
    **{name: lambda name=name: network(name) for name in NETWORKS},
    **{kind.__name__: make for kind, make in WRAPPED.items()},
    "laplace, full and sampled": lambda: predicting(LastLayerLaplace("full", "sampled"), network("realmlp")),
    "wrappers in wrappers": lambda: corrected(
        ensemble(sharpened(network()), ensemble(network(), corrected(network())))
    ),
}


def ours():
    """The wrappers of the package itself; examples in docstrings make further ones."""
    package = [kind for kind in wrappers() if kind.__module__.startswith("selfcal.")]
    return {kind for kind in package if hasattr(import_module(kind.__module__), kind.__qualname__)}


def test_every_wrapper_of_the_package_is_in_this_contract():
    for module in pkgutil.walk_packages(selfcal.__path__, "selfcal."):
        if not module.name.endswith("__main__") and not module.name.startswith("selfcal.integrations."):
            import_module(module.name)
    assert ours() == WRAPPED.keys() - {Sharpened}


def test_the_classifier_knows_every_wrapper_of_the_package_without_further_imports():
    code = """
import selfcal
from selfcal.models.spec import wrappers
selfcal.SelfCalibratedClassifier
print(*sorted(kind.key for kind in wrappers()))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == sorted(kind.key for kind in ours())


@pytest.mark.parametrize("make", DESCRIBED.values(), ids=DESCRIBED.keys())
def test_the_same_logits_from_spec_and_state(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().eval()
    spec = spec_of(module)
    stored = json.loads(json.dumps(spec, allow_nan=False))
    assert stored == spec
    assert not has_own(spec)
    weights = {name.removeprefix("network."): values for name, values in weights_of(module).items()}
    again = restored_module(stored, SIZES, weights, None).eval()
    images = spec.get("name") in ("resnet8", "resnet18", "resnet50", "vgg16")
    x = (
        torch.linspace(-1, 1, 4 * 784).reshape(4, 1, 28, 28)
        if images
        else torch.linspace(-2, 2, 28).view(4, 7)
    )
    with torch.no_grad():
        assert torch.equal(again(x), module(x))
    assert repr(again) == repr(module)
    assert spec_of(again) == spec
    assert summary_of(again) == summary_of(module)


class TestThroughAFolder:
    """A model around whose network a wrapper was put is saved and loaded as any other."""

    def model(self, wrap, **settings):
        model = fitted("standard", **settings)
        model.module_ = wrap(model.module_).eval()
        return model

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda inside: sharpened(inside, 5),
            lambda inside: ensemble(sharpened(inside, 5), inside),
            lambda inside: corrected(sharpened(ensemble(inside, inside), 5), 5),
        ],
    )
    @pytest.mark.parametrize("own", [None, two_layers])
    def test_a_wrapper_of_ones_own(self, tmp_path, wrap, own):
        model = self.model(wrap, network=own)
        folder = model.save(tmp_path / "model", own_network=own is not None)
        again = SelfCalibratedClassifier.load(folder, network=own)
        assert repr(again.module_) == repr(model.module_)
        same(model, again)
        assert not any(tensor.is_meta for tensor in again.module_.state_dict().values())

    def test_own_networks_beside_ours(self, tmp_path):
        model = self.model(lambda inside: ensemble(inside, models.mlp(2, 5)), network=two_layers)
        folder = model.save(tmp_path / "model", own_network=True)
        same(model, SelfCalibratedClassifier.load(folder, network=two_layers))
        with pytest.raises(ModelFormatError, match="Pass the function that makes it"):
            SelfCalibratedClassifier.load(folder)

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda inside: inside,
            lambda inside: ensemble(inside, inside),
            lambda inside: corrected(inside, 5),
            lambda inside: corrected(ensemble(inside, inside), 5),
        ],
    )
    def test_folders_of_own_networks_without_a_spec(self, tmp_path, wrap):
        """As selfcal 0.1.0 wrote them."""
        model = self.model(wrap, network=two_layers)
        folder = changed(model.save(tmp_path / "model", own_network=True), lambda d: d.update(network=None))
        again = SelfCalibratedClassifier.load(folder, network=two_layers)
        assert repr(again.module_) == repr(model.module_)
        same(model, again)

    def test_an_own_network_with_tensors_named_like_those_of_a_wrapper(self, tmp_path):
        """Names of weights tell nothing where there is a spec."""

        class Named(nn.Module):
            def __init__(self, n_features, n_classes):
                super().__init__()
                self.network = nn.Linear(n_features, n_classes)
                self.register_buffer("matrix", torch.ones(()))
                self.register_buffer("power", torch.ones(()))

            def forward(self, x):
                return self.matrix * self.network(x)

        model = fitted("standard", network=Named)
        folder = model.save(tmp_path / "model", own_network=True)
        same(model, SelfCalibratedClassifier.load(folder, network=Named))


class TestRules:
    @pytest.mark.parametrize("key", ["members", "own", "name", "kind"])
    def test_keys_that_are_taken(self, key):
        with pytest.raises(ConfigError, match="must have a unique key"):
            type("Other", (Wrapper,), {}, key=key)
        assert sum(kind.key == key for kind in wrappers()) == (key == "members")

    def test_wrappers_are_not_inherited_from(self):
        with pytest.raises(ConfigError, match="must derive from Wrapper itself"):
            type("Other", (EnsembleModule,), {}, key="other")

    def test_a_class_that_is_defined_again_replaces_the_first(self):
        first, second = (type("Again", (Sharpened.__base__,), {}, key="again") for _ in range(2))
        assert first is not second
        assert next(kind for kind in wrappers() if kind.key == "again") is second

    def test_depth_and_number_are_bounded(self):
        spec = spec_of(network())
        for _ in range(MAX_DEPTH):
            spec = {"members": [spec]}
        Builder(*SIZES)(spec)
        with pytest.raises(ModelFormatError, match=f"At most {MAX_DEPTH} wrappers"):
            Builder(*SIZES)({"members": [spec]})
        with pytest.raises(ModelFormatError, match="More than 2 networks do not fit"):
            Builder(*SIZES, max_networks=2)({"members": [{"members": [spec_of(network())] * 2}] * 2})

    def test_summaries(self):
        assert summary_of(ensemble(network(), network())) == "ensemble of 2 models"
        assert summary_of(corrected(network())) == "hidden layers [5, 4], corrected for wrong labels"
        assert summary_of(corrected(network("resnet18"))) == "resnet18, corrected for wrong labels"
        assert summary_of(sharpened(network())) == "Sharpened"
        assert summary_of(nn.Linear(1, 1)) == "Linear"
