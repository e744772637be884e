"""Our last-layer Laplace approximation against laplace-torch 0.3: the same Hessian, samples and predictive."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from selfcal.predictive import LastLayerLaplace
from selfcal.predictive.curvature import STRUCTURES

laplace = pytest.importorskip("laplace", reason="laplace-torch, the reference, is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # its own, about names that torch has deprecated

D, C = 6, 4
TO = {"rtol": 0, "atol": 1e-8}


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def network(request):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, D), nn.Tanh(), nn.Linear(D, C, bias=request.param)).double()


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(90, 5, dtype=torch.float64, generator=generator)
    return x, torch.randint(C, (90,), generator=generator)


@pytest.fixture
def new():
    x = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return torch.cat([x, 20 * x])


@pytest.fixture(autouse=True)
def float64():
    """Their full Hessian is a product with an identity matrix of torch's default type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def theirs(structure, network, data, delta):
    found = laplace.Laplace(
        network,
        "classification",
        subset_of_weights="last_layer",
        hessian_structure=structure,
        prior_precision=delta,
    )
    found.fit(DataLoader(TensorDataset(*data), batch_size=40))
    return found


def matrix(found):
    return found.H if isinstance(found.H, torch.Tensor) else found.H.to_matrix()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_same_hessian(structure, network, data):
    has_bias = network[-1].bias is not None
    ours = STRUCTURES[structure](C, D + has_bias, has_bias=has_bias)
    with torch.no_grad():
        features = network[:-1](data[0])
        ours.add(network[-1](features), features, torch.ones(90))
    torch.testing.assert_close(ours.matrix(), matrix(theirs(structure, network, data, 1.0)), **TO)


@pytest.mark.parametrize("delta", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_same_probit_predictive(structure, delta, network, data, new):
    ours = LastLayerLaplace(structure, "probit", prior_precision=delta).fit(network, data)
    reference = theirs(structure, network, data, delta)
    with torch.no_grad():
        _, covariance = reference._glm_predictive_distribution(new)
        torch.testing.assert_close(ours.variance(new), covariance.diagonal(dim1=1, dim2=2), **TO)
        expected = reference(new, pred_type="glm", link_approx="probit")
        torch.testing.assert_close(ours(new).softmax(dim=1), expected, **TO)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_same_sampled_predictive(structure, network, data, new):
    """Both draw the same normal numbers from a generator with the same seed, and scale them by the same root."""
    ours = LastLayerLaplace(structure, "sampled", prior_precision=0.5, samples=20).fit(network, data, seed=7)
    reference = theirs(structure, network, data, 0.5)
    with torch.no_grad():
        expected = reference.predictive_samples(
            new, pred_type="nn", n_samples=20, generator=torch.Generator().manual_seed(7)
        )
        torch.testing.assert_close(ours.member_logits(new).softmax(dim=2), expected, **TO)
        torch.testing.assert_close(ours(new).softmax(dim=1), expected.mean(dim=0), **TO)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_prior_precision_has_the_largest_of_their_marginal_likelihoods(structure, network, data):
    delta = float(LastLayerLaplace(structure).fit(network, data).prior_precision)
    reference = theirs(structure, network, data, 1.0)
    grid = delta * np.geomspace(0.5, 2, 201)
    found = [float(reference.log_marginal_likelihood(torch.tensor([one]).double())) for one in grid]
    assert np.argmax(found) == 100
