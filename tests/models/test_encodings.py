"""Columns spread over many inputs, against NumPy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from selfcal.errors import ConfigError
from selfcal.models.encodings import Periodic, PiecewiseLinear, Waves

NUMBERS = st.floats(-1e3, 1e3, width=32)
COLUMNS = arrays.arrays(np.float32, st.integers(2, 30), elements=NUMBERS)


def places(encoding, x):
    """Of the only column, its place in each bin."""
    return encoding(torch.from_numpy(np.asarray(x, dtype=np.float32))[:, None])[:, 1:].numpy()


@settings(deadline=None, max_examples=30)
@given(column=COLUMNS, asked=COLUMNS, n_bins=st.integers(1, 8))
def test_places_are_those_of_interpolation_between_quantiles(column, asked, n_bins):
    encoding = PiecewiseLinear(1, [0], n_bins).fit(torch.from_numpy(column)[:, None])
    edges = np.unique(np.quantile(column.astype(float), np.linspace(0, 1, n_bins + 1)).astype(np.float32))
    expected = np.zeros((len(asked), n_bins))
    for i in range(len(edges) - 1):
        expected[:, i] = np.interp(asked.astype(float), edges[i : i + 2].astype(float), [0, 1])
    np.testing.assert_allclose(places(encoding, asked), expected, atol=1e-4)


@settings(deadline=None, max_examples=30)
@given(column=COLUMNS)
def test_places_grow_with_the_value(column):
    encoding = PiecewiseLinear(1, [0], 4).fit(torch.from_numpy(column)[:, None])
    said = places(encoding, np.sort(column))
    assert (np.diff(said, axis=0) >= 0).all()
    assert said.min() >= 0
    assert said.max() <= 1


def test_bins_hold_as_many_rows_each():
    column = np.random.default_rng(0).lognormal(sigma=2, size=1000)
    inside = places(PiecewiseLinear(1, [0], 5).fit(torch.tensor(column)[:, None].float()), column)
    np.testing.assert_allclose(((inside > 0) & (inside < 1)).sum(axis=0), 200, atol=2)


def test_a_column_of_few_values_leaves_bins_empty():
    column = np.repeat([0.0, 1.0, 2.0], 10)
    said = places(PiecewiseLinear(1, [0], 6).fit(torch.tensor(column)[:, None].float()), [-5, 0.5, 9])
    assert said[-1].sum() < 6
    assert said[0].sum() == 0
    assert np.isfinite(said).all()


@pytest.mark.parametrize("value", [0.0, 7.5])
def test_a_constant_column_stays_at_zero(value):
    encoding = PiecewiseLinear(1, [0], 4).fit(torch.full((10, 1), value))
    assert not places(encoding, [-1e9, value, 1e9]).any()


def test_an_encoding_fitted_twice_forgets():
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    first = PiecewiseLinear(2, [0, 1], 4).fit(x)
    again = PiecewiseLinear(2, [0, 1], 4).fit(torch.zeros(5, 2)).fit(x)
    assert torch.equal(first(x), again(x))


def test_waves_of_one_column_as_the_formula_has_them():
    torch.manual_seed(0)
    waves = Periodic(3, columns=[2, 0], n_waves=4, n_mixed=2)
    x = torch.randn(7, 3)
    said = waves(x).detach()
    for place, column in enumerate(waves.columns):
        phases = x[:, column, None] * waves.frequency[place] + waves.phase[place]
        mixed = (torch.cos(phases) @ waves.weight[place] + waves.bias[place]).relu()
        torch.testing.assert_close(said[:, 3 + 2 * place : 5 + 2 * place], mixed.detach())


def test_waves_through_all_columns_as_the_formula_has_them():
    waves, x = Waves(3, n_waves=5), 2 * torch.randn(7, 3)
    said = waves.fit(x)(x)
    assert said.shape == (7, waves.n_outputs)
    torch.testing.assert_close(said[:, :3], x / (1 + x.square() / 9).sqrt())
    torch.testing.assert_close(said[:, 3:], torch.cos(x @ waves.direction + waves.phase))
    assert waves(torch.tensor([[1e18, -1e18, 0.0]])).isfinite().all()


@pytest.mark.parametrize("n_features", [1, 4, 100])
def test_waves_are_as_fast_as_asked_for_whatever_the_number_of_columns(n_features):
    torch.manual_seed(0)
    speed = Waves(n_features, 20_000, slowest=1.0, fastest=4.0).direction.detach().square().sum(dim=0)
    expected = (4**2 - 1) / (2 * math.log(4))  # the mean of the squares, on a logarithmic scale
    assert float(speed.mean()) == pytest.approx(expected, rel=0.05)


ENCODINGS = {
    "piecewise": lambda columns: PiecewiseLinear(3, columns, 4),
    "periodic": lambda columns: Periodic(3, columns, n_waves=4, n_mixed=2),
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("columns", [[], [1], [2, 0], [0, 1, 2]])
class TestContract:
    def test_width_and_the_columns_first(self, name, columns):
        x = 2 * torch.randn(20, 3)
        encoding = ENCODINGS[name](columns).fit(x)
        said = encoding(x)
        assert said.shape == (20, encoding.n_outputs)
        torch.testing.assert_close(said[:, :3], x / (1 + x.square() / 9).sqrt())

    def test_only_chosen_columns_are_spread(self, name, columns):
        x = torch.randn(20, 3)
        encoding, moved = ENCODINGS[name](columns).fit(x), x.clone()
        moved[:, [c for c in range(3) if c not in columns]] += 1
        assert torch.equal(encoding(x)[:, 3:], encoding(moved)[:, 3:])

    def test_far_values_are_pulled_in(self, name, columns):
        said = ENCODINGS[name](columns).fit(torch.randn(20, 3))(torch.tensor([[1e18, -1e18, 0.0]]))
        assert said.isfinite().all()
        torch.testing.assert_close(said[0, :3], torch.tensor([3.0, -3.0, 0.0]))

    def test_state_says_all(self, name, columns):
        x = torch.randn(20, 3)
        first, second = ENCODINGS[name](columns).fit(x), ENCODINGS[name](columns)
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(x), second(x))
        assert repr(first) == repr(second)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PiecewiseLinear(2, [0], 0), "n_bins must be a whole number"),
        (lambda: Periodic(2, [0], n_mixed=0), "n_mixed must be a whole number"),
        (lambda: Periodic(2, [0], scale=0), "scale must be a number"),
        (lambda: Periodic(2, [0], n_waves=0), "n_waves must be a whole number"),
        (lambda: Periodic(2, [0], scale=math.nan), "scale must be a number"),
        (lambda: Waves(2, 0), "n_waves must be a whole number"),
        (lambda: Waves(2, slowest=0), "slowest must be a number"),
        (lambda: Waves(2, slowest=2, fastest=1), "fastest must be a number"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
