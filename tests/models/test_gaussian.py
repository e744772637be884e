"""Discriminant analysis as a network: Gaussian densities, and what the regularisation means."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import multivariate_normal

from selfcal import models
from selfcal.models.gaussian import Moments
from selfcal.models.layers import RobustScaling

N_CLASSES, N_COLUMNS = 3, 4


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=300)
    shapes = rng.normal(size=(N_CLASSES, N_COLUMNS, N_COLUMNS))
    x = rng.normal(size=(300, N_COLUMNS, 1))
    return torch.from_numpy((shapes[y] @ x)[:, :, 0] + y[:, None]).float(), y


def fitted(x, y, common_rows, diagonal, *, weight=None, n_classes=N_CLASSES):
    scaling = RobustScaling(x.shape[1]).fit(x)
    return Moments.of(scaling(x).double().numpy(), y, weight, n_classes).network(
        scaling, common_rows, diagonal
    )


def probabilities(network, x):
    with torch.no_grad():
        return network(x).softmax(dim=1).numpy()


@pytest.mark.parametrize("separate", [False, True])
def test_without_regularisation_it_is_the_ratio_of_gaussian_densities(rows, separate):
    x, y = rows
    network = fitted(x, y, 1e-9 if separate else np.inf, diagonal=0.0)
    own = [network[0](x[y == c]).double().numpy() for c in range(N_CLASSES)]
    scatter = [(len(part) - 1) * np.cov(part.T) for part in own]
    common = sum(scatter) / (len(y) - N_CLASSES)
    logits = [
        np.log(len(part))
        + multivariate_normal(part.mean(axis=0), products / (len(part) - 1) if separate else common).logpdf(
            network[0](x).double().numpy()
        )
        for part, products in zip(own, scatter, strict=True)
    ]
    np.testing.assert_allclose(probabilities(network, x), softmax(logits, axis=0).T, atol=1e-3)


def test_many_common_rows_make_it_linear(rows):
    x, y = rows
    separate, common = (probabilities(fitted(x, y, size, 0.1), x) for size in (1e9, np.inf))
    np.testing.assert_allclose(separate, common, atol=1e-3)


def test_the_diagonal_makes_columns_independent(rows):
    x, y = rows
    network = fitted(x, y, 1e-9, diagonal=1.0)
    blocks = network[1].weight.detach().view(N_CLASSES, N_COLUMNS, N_COLUMNS)
    assert torch.equal(blocks, blocks * torch.eye(N_COLUMNS))


def test_a_weight_of_two_is_a_row_twice(rows):
    x, y = rows
    scaled, twice = x.double().numpy(), np.arange(len(y)) % 3 == 0
    again = np.concatenate([np.arange(len(y)), np.flatnonzero(twice)])
    weighted, repeated = (
        Moments.of(scaled, y, 1.0 + twice, N_CLASSES),
        Moments.of(scaled[again], y[again], None, N_CLASSES),
    )
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(
        weighted.scatter / weighted.count.sum(), repeated.scatter / repeated.count.sum()
    )


@pytest.mark.parametrize("common_rows", [np.inf, 30.0])
def test_a_class_without_rows_and_a_constant_column(rows, common_rows):
    x, y = rows
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    probs = probabilities(fitted(x, y, common_rows, 0.1, n_classes=N_CLASSES + 1), x)
    assert np.isfinite(probs).all()
    assert probs[:, N_CLASSES].max() < 1e-3


def test_with_many_columns_covariances_are_common_and_then_diagonal(rows, monkeypatch):
    x, y = rows
    scaled = x.double().numpy()
    assert Moments.of(scaled, y, None, N_CLASSES).separate
    monkeypatch.setattr("selfcal.models.gaussian.MAX_COVARIANCES", N_CLASSES * N_COLUMNS**2 - 1)
    common = Moments.of(scaled, y, None, N_CLASSES)
    assert not common.separate
    monkeypatch.setattr("selfcal.models.gaussian.MAX_COLUMNS", N_COLUMNS - 1)
    diagonal = Moments.of(scaled, y, None, N_CLASSES)
    scaling = RobustScaling(N_COLUMNS)
    ours, expected = (
        moments.network(scaling, np.inf, weight)[1].weight.detach()
        for moments, weight in ((diagonal, 0.0), (common, 1.0))
    )
    torch.testing.assert_close(ours, expected)


def test_it_can_be_made_again(rows):
    network = fitted(*rows, 30.0, 0.1)
    name, arguments = models.origin(network)
    again = getattr(models, name)(**arguments)
    again.load_state_dict(network.state_dict())
    assert torch.equal(again(rows[0]), network(rows[0]))
