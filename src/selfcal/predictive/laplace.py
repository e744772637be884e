"""Last-layer Laplace approximation: a Gaussian posterior of the weights of a trained network's last layer."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal._support.checks import in_range, one_of, positive_int
from selfcal.errors import ConfigError, DataError, ModelFormatError
from selfcal.models.batch_ensemble import logits_of_mean
from selfcal.models.spec import Builder, Wrapper, spec_of, summary_of
from selfcal.predictive.curvature import STRUCTURES, Curvature, Posterior
from selfcal.training.distributed import of_each
from selfcal.training.inputs import Inputs, call
from selfcal.training.interfaces import Predictive
from selfcal.training.loader_batches import as_batches
from selfcal.training.problem import as_logits, evaluating, head_of, n_answers

PREDICTIVES = ("probit", "sampled")


@dataclass(frozen=True)
class LastLayerLaplace(Predictive):
    """A Gaussian posterior N(θ̂, (H + δI)⁻¹) around the trained weights and bias θ̂ of the last linear layer.

    H is the generalised Gauss-Newton Hessian of the log loss, summed over the training rows: with features φ,
    probabilities p and Λ = diag(p) - p pᵀ, it is Σ Λ ⊗ φφᵀ, where φ ends in a one for the bias. The prior precision δ
    maximises the marginal likelihood. Nothing is trained again, and a row costs little more than before.

    Args:
        structure: ``"full"`` for H itself, in memory and time for small last layers; ``"kron"`` for the Kronecker
            product (Σ Λ) ⊗ (mean of φφᵀ) for the weights, and Σ Λ for the bias.
        predictive: ``"sampled"`` predicts the mean probabilities of sampled last layers; ``"probit"`` divides each
            logit z of variance v by √(1 + πv/8), which is often underconfident: v counts that all logits may move
            together, which changes no probability.
        prior_precision: δ, if it is not to be found. What is found is often too small for few rows of separate
            classes, whose predictions are then underconfident.
        samples: Number of sampled last layers, which are also the answers of `member_logits`. They are stored.
        layer: The name of the last linear layer; by default the last one of the network.

    Example:
        >>> x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
        >>> network = nn.Linear(1, 2)
        >>> _ = network.load_state_dict({"weight": torch.tensor([[-1.0], [1.0]]), "bias": torch.zeros(2)})
        >>> module = LastLayerLaplace("full", "probit").fit(network, (x, torch.tensor([0, 0, 1, 1])))
        >>> far = torch.tensor([[2.0], [20.0]])
        >>> network(far).softmax(dim=1)[:, 1].detach().round(decimals=2)
        tensor([0.9800, 1.0000])
        >>> module(far).softmax(dim=1)[:, 1].detach().round(decimals=2)
        tensor([0.8900, 0.9400])

    Reference:
        Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig, Laplace redux: effortless Bayesian deep learning,
        2021.
    """

    structure: str = "kron"
    predictive: str = "sampled"
    prior_precision: float | None = None
    samples: int = 32
    layer: str | None = None

    def __post_init__(self) -> None:
        one_of("structure", self.structure, STRUCTURES)
        one_of("predictive", self.predictive, PREDICTIVES)
        if self.prior_precision is not None:
            in_range("prior_precision", self.prior_precision, 0, open_low=True)
        if positive_int("samples", self.samples) < 2:
            raise ConfigError("samples must be at least 2; got 1.")

    def check(self, module: nn.Module) -> None:
        """Raise a `ConfigError` for a network without a last linear layer, or with one that is too large."""
        _, head = head_of(module, self.layer)
        if head is None or n_answers(module) > 1:
            raise ConfigError(
                "A last-layer Laplace approximation needs a network that ends in one torch.nn.Linear; this "
                f"{type(module).__name__} {'has none' if head is None else 'has several members'}. Use another, such "
                "as network='mlp'."
            )
        STRUCTURES[self.structure].check(head.out_features, head.in_features + (head.bias is not None))

    def fit(self, module: nn.Module, data: object, *, seed: int = 0) -> LaplaceModule:
        """The network with the posterior of its last layer, from one pass over the training rows."""
        self.check(module)
        network = copy.deepcopy(module)
        name, head = head_of(network, self.layer)
        assert head is not None
        mean = _weights(head)
        curvature = STRUCTURES[self.structure](*mean.shape, has_bias=head.bias is not None)
        with torch.no_grad(), evaluating(network):
            for batch in as_batches(data).one_pass(0):
                rows = batch.to(head.weight)
                features, logits = _around(head, name, network, rows.x)
                weight = torch.ones(len(rows.y)) if rows.weight is None else rows.weight
                curvature.add(logits.double().cpu(), features.double().cpu(), weight.double().cpu())
        _total(curvature)
        noise = torch.randn(
            self.samples, mean.numel(), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        posterior = curvature.posterior(mean, self.prior_precision, noise)
        found = LaplaceModule(network, name, posterior, sampled=self.predictive == "sampled")
        return found.to(head.weight).eval()


class LaplaceModule(Wrapper, key="laplace"):
    """A network with a Gaussian posterior of its last linear layer.

    Args:
        network: The network; its last layer returns the features beside the logits from now on.
        layer: The name of the last linear layer.
        posterior: The posterior.
        sampled: Whether to predict by the sampled last layers, instead of by the variance of logits.
    """

    prior_precision: Tensor
    directions: Tensor
    variances: Tensor
    heads: Tensor

    def __init__(self, network: nn.Module, layer: str, posterior: Posterior, *, sampled: bool) -> None:
        super().__init__()
        self.network = network
        self.layer = layer
        self.sampled = sampled
        for name, value in posterior._asdict().items():
            self.register_buffer(name, value)
        network.get_submodule(layer).register_forward_hook(_with_features)

    @property
    def n_answers(self) -> int:
        """The number of sampled last layers."""
        return len(self.heads)

    def member_logits(self, *args: Tensor, **keywords: Tensor) -> Tensor:
        """The logits of each sampled last layer, (samples, rows, classes)."""
        return self._answers(self._parts(args, keywords)[1])

    def variance(self, *args: Tensor, **keywords: Tensor) -> Tensor:
        """The posterior variance of each logit, (rows, classes)."""
        return self._variance(self._parts(args, keywords)[1])

    def forward(self, *args: Tensor, **keywords: Tensor) -> Tensor:
        """The logits of the predictive distribution."""
        logits, features = self._parts(args, keywords)
        if self.sampled:
            return logits_of_mean(self._answers(features))
        return logits / (1 + math.pi / 8 * self._variance(features)).sqrt()

    def _parts(self, args: Any, keywords: Any) -> tuple[Tensor, Tensor]:
        """The logits and the features."""
        both, n_classes = as_logits(self.network(*args, **keywords)), self.heads.shape[1]
        return both[:, :n_classes], both[:, n_classes:].contiguous()

    def _answers(self, features: Tensor) -> Tensor:
        return _products(features, self.heads)

    def _variance(self, features: Tensor) -> Tensor:
        """Σ_j variance_cj (φ · direction_j)², with the same directions for all classes, or other ones for each."""
        parts = _products(features, self.directions).square()
        return torch.cat([F.linear(*of) for of in zip(parts, self.variances, strict=True)], dim=1)

    def spec(self) -> dict[str, Any]:
        """The network, its last layer, and the sizes of the buffers."""
        return {
            "network": spec_of(self.network),
            "layer": self.layer,
            "inputs": self.heads.shape[2],
            "samples": self.n_answers,
            "shared": len(self.directions) == 1,
            "sampled": self.sampled,
        }

    @classmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """The network by its spec, and buffers of the same sizes."""
        n_inputs, n_samples, n_classes = value["inputs"], value["samples"], build.n_classes
        shared, sampled = value["shared"], value["sampled"]
        if not all(type(size) is int and size > 0 for size in (n_inputs, n_samples)):
            raise ModelFormatError("The sizes of a last layer must be positive whole numbers.")
        if type(shared) is not bool or type(sampled) is not bool:
            raise ModelFormatError("'shared' and 'sampled' must be true or false.")
        empty = Posterior.empty(n_classes, n_inputs, n_samples, shared=shared)
        return cls(build(value["network"]), value["layer"], empty, sampled=sampled)

    def summary(self) -> str:
        """The network, and what is Bayesian about it."""
        return f"{summary_of(self.network)}, Laplace approximation of the last layer"


def _products(features: Tensor, rows: Tensor) -> Tensor:
    """The products of features with rows of numbers, (groups, rows, inputs), whose last one may be for a bias."""
    n_features = features.shape[1]
    bias = rows[:, :, n_features:].sum(dim=2)  # zero without a bias
    products = F.linear(features, rows[:, :, :n_features].flatten(0, 1), bias.flatten())
    return products.unflatten(1, rows.shape[:2]).transpose(0, 1)


def _with_features(head: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """A hook that makes the last layer return its input, too: without state, so that threads do not disturb it."""
    return torch.cat([output, given[0]], dim=1) if output.ndim == 2 else output


def _around(head: nn.Linear, name: str, network: nn.Module, x: Inputs) -> tuple[Tensor, Tensor]:
    """The input and the output of the last layer, after a check that the network returns this output."""
    seen: list[tuple[Tensor, Tensor]] = []
    watched = head.register_forward_hook(lambda layer, given, output: seen.append((given[0], output)))
    try:
        logits = as_logits(call(network, x))
    finally:
        watched.remove()
    if len(seen) == 1 and seen[0][0].ndim == 2 and torch.equal(logits.nan_to_num(), seen[0][1].nan_to_num()):
        return seen[0]
    raise ConfigError(
        f"The network must return the output of its last linear layer, for one vector of features for each row; that "
        f"of {name!r} is not returned. Name the last layer with `layer`, or remove what follows it."
    )


def _weights(head: nn.Linear) -> Tensor:
    """Weights and bias of a linear layer as it applies them, whatever its parametrisation: (outputs, inputs)."""
    layer = copy.deepcopy(head).double().cpu()
    with torch.no_grad():
        bias = layer(torch.zeros(1, layer.in_features, dtype=torch.float64))
        weight = layer(torch.eye(layer.in_features, dtype=torch.float64)) - bias
    return weight.T if layer.bias is None else torch.cat([weight, bias]).T


def _total(curvature: Curvature) -> None:
    """Add up the sums of all processes."""
    for name, value in curvature.sums.items():
        if not bool(value.isfinite().all()):
            raise DataError(
                "The features of the network must be finite on the training rows. Look for extreme values in them."
            )
        curvature.sums[name] = of_each(value).sum(dim=0)
