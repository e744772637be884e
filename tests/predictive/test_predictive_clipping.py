import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from selfcal import CalibratedModel, SelfCalibratedClassifier, calibrators, models, recipes, train
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.spec import Builder, spec_of
from selfcal.optimizers import Adam
from selfcal.predictive.clipping import ClippedFeatures, FeatureClipping
from selfcal.storage import export

X, Y = Blobs(std=1.7).sample(400, seed=0)


def linear():
    """A network whose features are its input, and the gap of whose logits is twice the feature."""
    network = nn.Linear(1, 2)
    network.load_state_dict({"weight": torch.tensor([[-1.0], [1.0]]), "bias": torch.zeros(2)})
    return network


def overconfident(n=600):
    """Rows for which that is right up to a feature of 0.8, and no further."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(n, 1, generator=generator)
    probs = torch.sigmoid(2 * x[:, 0].clamp(-0.8, 0.8))
    return linear(), x, (torch.rand(n, generator=generator) < probs).long()


def loss(network, x, y):
    with torch.no_grad():
        return float(F.cross_entropy(network(x).double(), y))


@pytest.mark.parametrize(("weight", "odds"), [((), 3), (([2.0, 2.0, 2.0, 1.0],), 6)], ids=["rows", "weights"])
def test_by_hand(weight, odds):
    """Features are the input, and three rows of four are right: the gap of the logits, 2 c, is the log odds."""
    data = (torch.full((4, 1), 5.0), torch.tensor([1, 1, 1, 0]), *map(torch.tensor, weight))
    clipped = FeatureClipping().fit(linear(), data)
    expected = math.log(odds) / 2
    assert clipped.threshold.item() == pytest.approx(expected, rel=1e-6)
    new = clipped(torch.tensor([[9.0], [-9.0], [0.1]]))
    assert torch.diff(new)[:, 0].tolist() == pytest.approx([2 * expected, -2 * expected, 0.2])


def test_no_threshold_is_better_on_a_fine_grid():
    network, x, y = overconfident()
    clipped = FeatureClipping().fit(network, (x, y))
    assert clipped.threshold.item() == pytest.approx(0.8, abs=0.2)
    grid = np.geomspace(1e-2, 20, 500)
    best = min(loss(ClippedFeatures(copy.deepcopy(network), c), x, y) for c in grid)
    assert loss(clipped, x, y) <= best + 1e-7
    assert loss(clipped, x, y) < 0.95 * loss(network, x, y)


def test_a_network_that_is_not_confident_enough_is_not_clipped():
    network, x, _ = overconfident()
    with torch.no_grad():
        y = network(x).argmax(dim=1)
        clipped = FeatureClipping().fit(network, (x, y))
        assert clipped.threshold == math.inf
        assert torch.equal(clipped(1e3 * x), network(1e3 * x))


def test_the_network_itself_stays_as_it_is_and_copies_clip():
    network, x, y = overconfident()
    before = network(x)
    clipped = FeatureClipping().fit(network, (x, y))
    assert torch.equal(network(x), before)
    after = clipped(x)
    assert not torch.allclose(after, before)
    for twin in (copy.deepcopy(clipped), pickle.loads(pickle.dumps(clipped))):
        assert torch.equal(twin(x), after)
        twin.threshold.fill_(math.inf)
        assert torch.equal(twin(x), before)
    assert torch.equal(clipped(x), after)


def test_data_in_any_form_gives_the_same_threshold():
    network, x, y = overconfident()
    expected = FeatureClipping().fit(network, (x, y)).threshold
    for data in ((x.numpy(), y.numpy()), DataLoader(TensorDataset(x, y), batch_size=64)):
        torch.testing.assert_close(
            FeatureClipping().fit(network, data).threshold, expected, rtol=1e-4, atol=0
        )
    twice = (torch.cat([x, x[:150]]), torch.cat([y, y[:150]]))
    weight = 1.0 + (torch.arange(len(y)) < 150)
    weighted = FeatureClipping().fit(network, (x, y, weight)).threshold
    torch.testing.assert_close(weighted, FeatureClipping().fit(network, twice).threshold, rtol=1e-4, atol=0)


def test_features_of_zero_have_nothing_to_clip():
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    nn.init.zeros_(network[0].weight)
    nn.init.constant_(network[0].bias, -1.0)
    clipped = FeatureClipping().fit(network, (torch.randn(8, 2), torch.arange(8) % 2))
    assert clipped.threshold == math.inf


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.head(x))


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (nn.Sequential(nn.BatchNorm1d(2)), "Sequential has no linear layer"),
        (Doubled(nn.Linear(2, 2)), "returns something else"),
        (Twice(), "called 2 times"),
    ],
    ids=["no layer", "doubled", "twice"],
)
def test_a_network_without_such_a_layer(network, reason):
    with pytest.raises(ConfigError, match=f"Feature clipping needs a network .* {reason}"):
        FeatureClipping().fit(network, (torch.randn(6, 2), torch.arange(6) % 2))


def test_spec():
    module = ClippedFeatures(models.mlp(2, 5, hidden=(4,)), 1.5)
    spec = spec_of(module)
    again = Builder(2, 5)(spec)
    again.load_state_dict(module.state_dict())
    x = 9 * torch.randn(4, 2)
    assert torch.equal(again(x), module(x))
    with pytest.raises(ModelFormatError, match="has no linear layer"):
        Builder(2, 2, own=lambda: nn.BatchNorm1d(2))({"clipped_features": {"own": "BatchNorm1d"}})


def test_a_classifier_is_stored_and_read(tmp_path):
    clf = SelfCalibratedClassifier("feature_clipping", max_epochs=100, patience=None, random_state=0)
    clf.fit(X[:150], Y[:150])
    assert isinstance(clf.module_, ClippedFeatures)
    assert clf.calibrator_ is None
    again = SelfCalibratedClassifier.load(clf.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert "features clipped at" in again.module_.summary()
    assert repr(again.method_) == repr(clf.method_)


def test_onnx(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    clf = SelfCalibratedClassifier("feature_clipping", max_epochs=30, random_state=0).fit(X, Y)
    clf.module_.threshold.fill_(0.5)  # so that it clips
    export.to_onnx(clf, tmp_path / "model.onnx")
    (probs,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": X})
    np.testing.assert_allclose(probs, clf.predict_proba(X), rtol=0, atol=1e-6)


def test_a_temperature_can_follow():
    network, x, y = overconfident()
    clipped = FeatureClipping().fit(network, (x, y))
    model = CalibratedModel(clipped, calibrators.TemperatureScaling()).fit(x, y)
    assert model.calibrator_.temperature_ == pytest.approx(1.0, abs=0.2)


def test_a_recipe_may_have_both():
    x, y = torch.from_numpy(X).float(), torch.from_numpy(Y)
    recipe = replace(recipes.feature_clipping(), calibrator=calibrators.TemperatureScaling())
    network, settings = models.mlp(2, 5), {"optimizer": Adam(lr=0.01), "max_steps": 20}
    result = train(network, (x[:200], y[:200]), (x[200:], y[200:]), recipe=recipe, **settings)
    again = calibrators.TemperatureScaling().fit(result.module(x[200:]).detach().numpy(), Y[200:])
    assert isinstance(result.module, ClippedFeatures)
    assert result.calibrator.temperature_ == pytest.approx(again.temperature_, rel=1e-4)
