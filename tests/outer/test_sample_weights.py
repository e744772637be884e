import pytest
import torch

from selfcal.errors import ConfigError, DataError
from selfcal.outer import SampleWeights
from selfcal.training.types import Batch, Output, Sizes

LIKE = torch.zeros((), dtype=torch.float64)
OUTPUT = Output(torch.zeros(3, 2))


def batch(*index):
    return Batch(torch.zeros(len(index), 1), torch.zeros(len(index), dtype=torch.long), torch.tensor(index))


@pytest.mark.parametrize("link", ["identity", "sigmoid"])
def test_starts_at_a_half_everywhere(link):
    model = SampleWeights(link=link)
    weights = model(model.init(Sizes(5), LIKE), OUTPUT, batch(4, 0, 2))["weight"]
    torch.testing.assert_close(weights, torch.full((3,), 0.5, dtype=torch.float64))


def test_looks_weights_up_by_row():
    outer = {"weight": torch.tensor([0.1, 0.2, 0.3, 0.4])}
    assert SampleWeights()(outer, OUTPUT, batch(3, 1))["weight"].tolist() == pytest.approx([0.4, 0.2])


def test_outer_rows_have_no_weights():
    rows = Batch(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))
    with pytest.raises(DataError, match=r"needs the index of each training row.*Batch\(x, y, index\)"):
        SampleWeights()({"weight": torch.ones(4)}, OUTPUT, rows)


def test_projection():
    outer = {"weight": torch.tensor([-0.5, 0.5, 1.5])}
    assert SampleWeights().project(outer)["weight"].tolist() == [0.0, 0.5, 1.0]
    assert SampleWeights(link="sigmoid").project(outer) is outer


def test_normalized_weights_have_mean_one_over_all_rows():
    model = SampleWeights(normalize=True)
    outer = {"weight": torch.tensor([0.1, 0.2, 0.3, 0.4])}
    assert model.values(outer).mean().item() == pytest.approx(1)
    assert model(outer, OUTPUT, batch(0))["weight"].item() == pytest.approx(0.4)


@pytest.mark.parametrize(
    "settings", [{"link": "sigmod"}, {"start": 0.0}, {"start": 1.5}, {"start": 1.0, "link": "sigmoid"}]
)
def test_bad_settings(settings):
    with pytest.raises(ConfigError):
        SampleWeights(**settings)
