"""Encodings of numerical columns, against NumPy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from selfcal.errors import ConfigError
from selfcal.models.encodings import FourierFeatures, Periodic, PiecewiseEmbedding, PiecewiseLinear

NUMBERS = st.floats(-1e3, 1e3, width=32)
COLUMNS = arrays.arrays(np.float32, st.integers(2, 30), elements=NUMBERS)


def encoded_part(encoding, x):
    """Return the encoding of the only column, without the column itself."""
    return encoding(torch.from_numpy(np.asarray(x, dtype=np.float32))[:, None])[:, 1:].numpy()


@settings(deadline=None, max_examples=30)
@given(column=COLUMNS, asked=COLUMNS, n_bins=st.integers(1, 8))
def test_encoding_interpolates_between_quantiles(column, asked, n_bins):
    encoding = PiecewiseLinear(1, [0], n_bins).fit(torch.from_numpy(column)[:, None])
    edges = np.unique(np.quantile(column.astype(float), np.linspace(0, 1, n_bins + 1)).astype(np.float32))
    expected = np.zeros((len(asked), n_bins))
    for i in range(len(edges) - 1):
        expected[:, i] = np.interp(asked.astype(float), edges[i : i + 2].astype(float), [0, 1])
    np.testing.assert_allclose(encoded_part(encoding, asked), expected, atol=1e-4)


@settings(deadline=None, max_examples=30)
@given(column=COLUMNS)
def test_encoding_increases_with_the_value(column):
    encoding = PiecewiseLinear(1, [0], 4).fit(torch.from_numpy(column)[:, None])
    encoded = encoded_part(encoding, np.sort(column))
    assert (np.diff(encoded, axis=0) >= 0).all()
    assert encoded.min() >= 0
    assert encoded.max() <= 1


def test_bins_hold_equally_many_rows():
    column = np.random.default_rng(0).lognormal(sigma=2, size=1000)
    inside = encoded_part(PiecewiseLinear(1, [0], 5).fit(torch.tensor(column)[:, None].float()), column)
    np.testing.assert_allclose(((inside > 0) & (inside < 1)).sum(axis=0), 200, atol=2)


def test_a_column_of_few_values_leaves_bins_empty():
    column = np.repeat([0.0, 1.0, 2.0], 10)
    encoded = encoded_part(
        PiecewiseLinear(1, [0], 6).fit(torch.tensor(column)[:, None].float()), [-5, 0.5, 9]
    )
    assert encoded[-1].sum() < 6
    assert encoded[0].sum() == 0
    assert np.isfinite(encoded).all()


@pytest.mark.parametrize("value", [0.0, 7.5])
def test_a_constant_column_stays_at_zero(value):
    encoding = PiecewiseLinear(1, [0], 4).fit(torch.full((10, 1), value))
    assert not encoded_part(encoding, [-1e9, value, 1e9]).any()


def test_a_second_fit_replaces_the_first():
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    first = PiecewiseLinear(2, [0, 1], 4).fit(x)
    again = PiecewiseLinear(2, [0, 1], 4).fit(torch.zeros(5, 2)).fit(x)
    assert torch.equal(first(x), again(x))


def test_periodic_features_follow_the_formula():
    torch.manual_seed(0)
    encoding = Periodic(3, columns=[2, 0], n_frequencies=4, n_embedding=2)
    x = torch.randn(7, 3)
    encoded = encoding(x).detach()
    for place, column in enumerate(encoding.columns):
        phases = x[:, column, None] * encoding.frequency[place] + encoding.phase[place]
        embedded = (torch.cos(phases) @ encoding.weight[place] + encoding.bias[place]).relu()
        torch.testing.assert_close(encoded[:, 3 + 2 * place : 5 + 2 * place], embedded.detach())


def test_fourier_features_follow_the_formula():
    encoding, x = FourierFeatures(3, n_frequencies=5), 2 * torch.randn(7, 3)
    encoded = encoding.fit(x)(x)
    assert encoded.shape == (7, encoding.n_outputs)
    torch.testing.assert_close(encoded[:, :3], x / (1 + x.square() / 9).sqrt())
    torch.testing.assert_close(encoded[:, 3:], torch.cos(x @ encoding.direction + encoding.phase))
    assert encoding(torch.tensor([[1e18, -1e18, 0.0]])).isfinite().all()


@pytest.mark.parametrize("n_features", [1, 4, 100])
def test_frequencies_do_not_depend_on_the_number_of_columns(n_features):
    torch.manual_seed(0)
    squared = (
        FourierFeatures(n_features, 20_000, min_frequency=1.0, max_frequency=4.0)
        .direction.detach()
        .square()
        .sum(dim=0)
    )
    expected = (4**2 - 1) / (2 * math.log(4))  # the mean of the squares, on a logarithmic scale
    assert float(squared.mean()) == pytest.approx(expected, rel=0.05)


ENCODINGS = {
    "piecewise": lambda columns: PiecewiseLinear(3, columns, 4),
    "periodic": lambda columns: Periodic(3, columns, n_frequencies=4, n_embedding=2),
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("columns", [[], [1], [2, 0], [0, 1, 2]])
class TestContract:
    def test_width_and_the_columns_first(self, name, columns):
        x = 2 * torch.randn(20, 3)
        encoding = ENCODINGS[name](columns).fit(x)
        encoded = encoding(x)
        assert encoded.shape == (20, encoding.n_outputs)
        torch.testing.assert_close(encoded[:, :3], x / (1 + x.square() / 9).sqrt())

    def test_only_chosen_columns_are_encoded(self, name, columns):
        x = torch.randn(20, 3)
        encoding, moved = ENCODINGS[name](columns).fit(x), x.clone()
        moved[:, [c for c in range(3) if c not in columns]] += 1
        assert torch.equal(encoding(x)[:, 3:], encoding(moved)[:, 3:])

    def test_outliers_are_squashed(self, name, columns):
        encoded = ENCODINGS[name](columns).fit(torch.randn(20, 3))(torch.tensor([[1e18, -1e18, 0.0]]))
        assert encoded.isfinite().all()
        torch.testing.assert_close(encoded[0, :3], torch.tensor([3.0, -3.0, 0.0]))

    def test_state_dict_is_complete(self, name, columns):
        x = torch.randn(20, 3)
        first, second = ENCODINGS[name](columns).fit(x), ENCODINGS[name](columns)
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(x), second(x))
        assert repr(first) == repr(second)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PiecewiseLinear(2, [0], 0), "n_bins must be a whole number"),
        (lambda: Periodic(2, [0], n_embedding=0), "n_embedding must be a whole number"),
        (lambda: Periodic(2, [0], scale=0), "scale must be a number"),
        (lambda: Periodic(2, [0], n_frequencies=0), "n_frequencies must be a whole number"),
        (lambda: Periodic(2, [0], scale=math.nan), "scale must be a number"),
        (lambda: FourierFeatures(2, 0), "n_frequencies must be a whole number"),
        (lambda: FourierFeatures(2, min_frequency=0), "min_frequency must be a number"),
        (lambda: FourierFeatures(2, min_frequency=2, max_frequency=1), "max_frequency must be a number"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_an_embedding_is_a_layer_for_each_column_on_its_encoding():
    x = torch.randn(50, 3)
    embedding = PiecewiseEmbedding(3, [0, 2], n_bins=5, n_embedding=4).fit(x)
    encoded = PiecewiseLinear(3, [0, 2], 5).fit(x)(x)
    blocks = encoded[:, 3:8], encoded[:, 8:]
    layers = zip(blocks, embedding.weight, embedding.bias, strict=True)
    expected = torch.cat([encoded[:, :3], *(block @ weight + bias for block, weight, bias in layers)], dim=1)
    torch.testing.assert_close(embedding(x), expected)
    assert expected.shape[1] == embedding.n_outputs


@pytest.mark.parametrize("columns", [[0, 2], [], [2, 1, 0]])
def test_piecewise_embedding_predicts_as_it_is_trained(columns):
    x = torch.randn(50, 3)
    layer = PiecewiseEmbedding(3, columns).fit(x)
    expected = layer(x).detach()
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x), expected, rtol=0, atol=1e-6)
