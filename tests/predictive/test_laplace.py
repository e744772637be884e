"""The last-layer Laplace approximation: against automatic differentiation and dense matrices."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from selfcal import CalibratedModel, models
from selfcal.errors import ConfigError, DataError, ModelFormatError
from selfcal.models.layers import ScaledLinear
from selfcal.models.spec import Builder, spec_of
from selfcal.predictive import LastLayerLaplace
from selfcal.predictive.curvature import STRUCTURES, Full, Kron, _precision

D, C, N = 4, 3, 80


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, 2, dtype=torch.float64, generator=generator)
    return (
        x,
        torch.randint(C, (N,), generator=generator),
        torch.rand(N, dtype=torch.float64, generator=generator),
    )


X, Y, WEIGHT = draw()


def network(*, bias=True):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, D), nn.Tanh(), nn.Linear(D, C, bias=bias)).double()


def curvature(structure, module, weight=WEIGHT):
    head = module[-1]
    has_bias = head.bias is not None
    found = STRUCTURES[structure](C, D + has_bias, has_bias=has_bias)
    with torch.no_grad():
        for rows in (slice(0, 30), slice(30, N)):
            features = module[:-1](X[rows])
            found.add(head(features), features, weight[rows])
    return found


def flat(heads):
    """Heads (samples, classes, inputs) in the order of the Hessian: weights, then biases."""
    return torch.cat([heads[:, :, :D].flatten(1), heads[:, :, D:].flatten(1)], dim=1)


@pytest.mark.parametrize("bias", [True, False])
def test_the_full_hessian_is_that_of_the_summed_log_loss(bias):
    """The logits are linear in the last layer, so that the Gauss-Newton Hessian is the Hessian."""
    module = network(bias=bias)
    features = module[:-1](X).detach()
    parameters = torch.cat([p.detach().flatten() for p in module[-1].parameters()])

    def loss(flat_parameters):
        weight = flat_parameters[: C * D].view(C, D)
        logits = features @ weight.T + (flat_parameters[C * D :] if bias else 0)
        return (WEIGHT * F.cross_entropy(logits, Y, reduction="none")).sum()

    expected = torch.func.hessian(loss)(parameters)
    torch.testing.assert_close(curvature("full", module).matrix(), expected, rtol=0, atol=1e-10)


def test_the_kronecker_product_by_hand():
    """One class against another at p = 1/2, a quarter each; features of mean square 2."""
    kron = Kron(2, 2, has_bias=True)
    kron.add(torch.zeros(2, 2), torch.tensor([[2.0], [0.0]]), torch.ones(2))
    half = 2 * torch.tensor([[0.25, -0.25], [-0.25, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(kron.matrix(), torch.block_diag(2 * half, half))


def test_both_structures_agree_for_equal_rows():
    """With the same features and probabilities in every row, the product of means is the mean of products."""
    full, kron = (kind(C, D, has_bias=False) for kind in (Full, Kron))
    row = torch.linspace(-1, 1, D, dtype=torch.float64).expand(6, -1)
    logits = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64).expand(6, -1)
    for one in (full, kron):
        one.add(logits, row, torch.ones(6))
    torch.testing.assert_close(full.matrix(), kron.matrix())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_variances_and_samples_are_those_of_the_dense_covariance(structure, bias):
    module = network(bias=bias)
    delta = 0.7
    found = curvature(structure, module)
    matrix = found.matrix()
    covariance = torch.linalg.inv(matrix + delta * torch.eye(len(matrix)).double())
    part = LastLayerLaplace(structure, "probit", prior_precision=delta)
    laplace = part.fit(module, (X, Y, WEIGHT))
    rows = torch.cat([X[:5], 30 * X[:5]])
    with torch.no_grad():
        features = module[:-1](rows)
        variance, logits, found_logits = laplace.variance(rows), module(rows), laplace(rows)
    # J of row n: the derivative of the logits in the weights and biases
    jacobian = torch.cat(
        [torch.kron(torch.eye(C), row[None]).double() for row in features[:, None]], dim=0
    ).view(len(rows), C, C * D)
    if bias:
        jacobian = torch.cat([jacobian, torch.eye(C).double().expand(len(rows), C, C)], dim=2)
    expected = (jacobian @ covariance @ jacobian.mT).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(variance, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found_logits, logits / (1 + math.pi / 8 * expected).sqrt())
    # rows of the identity as noise are the columns of a root of the covariance
    head = torch.cat([p.detach().flatten() for p in module[-1].parameters()])
    mean = torch.cat([module[-1].weight, module[-1].bias[:, None]] if bias else [module[-1].weight], dim=1)
    posterior = found.posterior(mean.detach(), delta, torch.eye(len(matrix), dtype=torch.float64))
    root = flat(posterior.heads) - head
    torch.testing.assert_close(root.T @ root, covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_prior_precision_has_the_largest_marginal_likelihood(structure):
    module = network()
    laplace = LastLayerLaplace(structure).fit(module, (X, Y))
    delta = float(laplace.prior_precision)
    matrix = curvature(structure, module, torch.ones(N)).matrix()
    size = sum(float(p.detach().square().sum()) for p in module[-1].parameters())

    def evidence(value):
        n = len(matrix)
        ratio = torch.logdet(matrix + value * torch.eye(n).double()) - n * math.log(value)
        return -0.5 * (float(ratio) + value * size)

    assert all(evidence(delta) > evidence(delta * factor) for factor in (0.1, 0.9, 0.99, 1.01, 1.1, 10))


@pytest.mark.parametrize(
    ("values", "mean", "expected"), [([0.0, 0.0], 1.0, math.exp(-18)), ([1.0, 1.0], 0.0, math.exp(18))]
)
def test_the_prior_precision_is_bounded(values, mean, expected):
    values = torch.tensor(values, dtype=torch.float64)
    assert _precision(values, torch.tensor([mean])) == pytest.approx(expected)


def test_the_sampled_predictive_is_the_mean_over_the_sampled_layers():
    module = network()
    laplace = LastLayerLaplace("full", "sampled", samples=7).fit(module, (X, Y))
    with torch.no_grad():
        features = module[:-1](X)
        probs = [(features @ head[:, :D].T + head[:, D]).softmax(dim=1) for head in laplace.heads]
        torch.testing.assert_close(laplace(X).softmax(dim=1), torch.stack(probs).mean(dim=0))
        torch.testing.assert_close(laplace.member_logits(X).softmax(dim=2), torch.stack(probs))


@pytest.mark.parametrize("predictive", ["probit", "sampled"])
def test_far_from_the_data_it_is_less_sure_than_the_network(predictive):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, C)).double()
    laplace = LastLayerLaplace(predictive=predictive).fit(module, (X, Y))
    with torch.no_grad():
        far = 1000 * X
        own, ours = (each(far).softmax(dim=1).amax(dim=1) for each in (module, laplace))
    assert float(own.mean()) > 0.95
    assert float(ours.mean()) < 0.9


def test_a_layer_in_another_parametrisation_counts_by_what_it_does():
    torch.manual_seed(0)
    scaled = ScaledLinear(D, C).double()
    nn.init.normal_(scaled.bias)
    plain = nn.Linear(D, C).double()
    with torch.no_grad():
        plain.bias.copy_(scaled(torch.zeros(1, D).double())[0])
        plain.weight.copy_((scaled(torch.eye(D).double()) - plain.bias).T)
        x = torch.randn(N, D, dtype=torch.float64)
        first, second = (LastLayerLaplace().fit(head, (x, Y))(x) for head in (scaled, plain))
    torch.testing.assert_close(first, second)


def test_an_own_module_in_a_calibrated_model():
    """Registered in another order than it is called, with two inputs; `layer` names its head."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.body = nn.Linear(6, 2), nn.Linear(5, 6)

        def forward(self, a, b):
            return self.head(torch.relu(self.body(torch.cat([a, b], dim=1))))

    torch.manual_seed(0)
    rows = (torch.randn(60, 2), torch.randn(60, 3))
    y = torch.arange(60) % 2
    with pytest.raises(ConfigError, match="that of 'body' is not returned"):
        LastLayerLaplace().fit(Two(), (rows, y))
    module = LastLayerLaplace(layer="head").fit(Two(), (rows, y))
    noisy = (module(*rows)[:, 0] + 0.1 * torch.randn(60) < 0).long()
    model = CalibratedModel(module).fit(rows, noisy.numpy())
    assert model.predict_proba(rows).shape == (60, 2)


class Several(nn.Linear):
    n_answers = 2


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (nn.Sequential(nn.Linear(2, 4), nn.Tanh()), {}, "that of '0' is not returned"),
        (nn.Sequential(nn.Linear(2, 3), nn.Softmax(dim=1)), {}, "is not returned"),
        (nn.Sequential(nn.Flatten()), {}, "ends in one torch.nn.Linear; this Sequential has none"),
        (models.tabm(2, 3, hidden=(4,)), {}, "has none"),
        (Several(2, 3), {}, "has several members"),
        (
            nn.Linear(2, 1000),
            {"structure": "full"},
            r"at most 2500 weights; got 1000 x 3. Use structure='kron'",
        ),
    ],
)
def test_networks_that_do_not_fit(module, settings, message):
    with pytest.raises(ConfigError, match=message):
        LastLayerLaplace(**settings).fit(module, (X.float(), Y))


def test_features_that_are_not_finite():
    x = X.clone()
    x[3] = torch.inf
    with pytest.raises(DataError, match="must be finite on the training rows"):
        LastLayerLaplace().fit(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3)).double(), (x, Y))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "diagonal"}, "structure must be one of"),
        ({"predictive": "mean"}, "predictive must be one of"),
        ({"prior_precision": 0}, "prior_precision must be"),
        ({"samples": 1}, "samples must be at least 2"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ConfigError, match=message):
        LastLayerLaplace(**settings)


@pytest.mark.parametrize("wrong", [{"inputs": 0}, {"samples": 2.0}, {"shared": 1}, {"sampled": None}])
def test_damaged_specs(wrong):
    spec = spec_of(LastLayerLaplace().fit(models.mlp(2, 3, hidden=(4,)), (X.float(), Y)))
    with pytest.raises(ModelFormatError, match="must be"):
        Builder(2, 3)({"laplace": spec["laplace"] | wrong})
