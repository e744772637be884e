"""A trained network whose features are clipped before its last layer."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.spec import Builder, Spec, Wrapper, spec_of, summary_of
from selfcal.training.engine import held_out_logits
from selfcal.training.interfaces import Predictive
from selfcal.training.loader_batches import as_batches
from selfcal.training.problem import head_of

N_CANDIDATES = 100
LOWEST = 1e-4
"""The search begins with thresholds between this fraction of the largest feature, and the largest."""


class ClippedFeatures(Wrapper, key="clipped_features"):
    """A network whose features f, the input of its last linear layer, are ``max(-c, min(f, c))``.

    Args:
        network: The network; from now on, its last linear layer clips its input.
        threshold: The threshold c; infinity changes nothing.

    Example:
        >>> from selfcal.models import mlp
        >>> clipped = ClippedFeatures(mlp(1, 2, hidden=()), 2.0)
        >>> bool((clipped(torch.tensor([[5.0]])) == clipped(torch.tensor([[2.0]]))).all())
        True
        >>> clipped.summary()
        'hidden layers [], features clipped at 2'
    """

    threshold: Tensor

    def __init__(self, network: nn.Module, threshold: float) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("threshold", torch.tensor(threshold, dtype=torch.float32))
        _head(network).register_forward_pre_hook(self._clip)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """What the network returns."""
        return self.network(*args, **keywords)

    def spec(self) -> Spec:
        """The spec of the network."""
        return spec_of(self.network)

    @classmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """The network by its spec; the threshold is a buffer."""
        try:
            return cls(build(value), math.inf)
        except ConfigError as error:
            raise ModelFormatError(str(error)) from error

    def summary(self) -> str:
        """The network, and the threshold."""
        return f"{summary_of(self.network)}, features clipped at {float(self.threshold):.4g}"

    def _clip(self, head: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        bound = self.threshold.to(given[0])
        return (torch.clamp(given[0], -bound, bound), *given[1:])


@dataclass(frozen=True)
class FeatureClipping(Predictive):
    """Clip the features of a trained network at the threshold of the lowest log loss on other rows.

    The features f are the input of the last linear layer, and ``softmax(W max(-c, min(f, c)) + b)`` the
    probabilities. Rows with large features, often the over-confident ones, change most. The threshold c is one
    number, found by a search in double precision, where the authors take the best of a fixed grid by ECE or by log
    loss. The log loss of the rows it is fitted on never rises. The predicted class may change.

    Example:
        The features are the input here, and three of four rows are right. The network has a confidence of 3/4 at a
        feature of ``log(3) / 2``:

        >>> network = nn.Linear(1, 2)
        >>> network.load_state_dict({"weight": torch.tensor([[-1.0], [1.0]]), "bias": torch.zeros(2)})
        <All keys matched successfully>
        >>> clipped = FeatureClipping().fit(network, (torch.full((4, 1), 3.0), torch.tensor([1, 1, 1, 0])))
        >>> clipped.threshold
        tensor(0.5493)

    Reference:
        Tao, Dong and Xu, Feature clipping for uncertainty calibration, 2025.
    """

    held_out = True

    def check(self, module: nn.Module) -> None:
        """Raise a `ConfigError` for a network without a linear layer."""
        _head(module)

    def fit(self, module: nn.Module, data: object, *, seed: int = 0) -> ClippedFeatures:
        """A copy of the network that clips.

        Args:
            module: The trained network.
            data: Rows that it was not trained on, in any form that `train` takes.
            seed: Nothing is drawn.
        """
        module, batches = copy.deepcopy(module), as_batches(data)
        logits, _, _ = held_out_logits(module, batches)
        features, y, weight = held_out_logits(_Features(module), batches)
        head, f = copy.deepcopy(_head(module)).double(), features.double()
        w = torch.ones_like(f[:, 0]) if weight is None else weight.double()
        with torch.no_grad():
            _check(head(f), logits.double())
            return ClippedFeatures(module, _best_threshold(head, f, y, w / w.sum()))


def _best_threshold(head: nn.Module, f: Tensor, y: Tensor, weight: Tensor) -> float:
    """The threshold of the lowest log loss; infinity if none is better than no clipping."""

    def loss(log_c: float) -> float:
        c = math.exp(log_c)
        return float(weight @ F.cross_entropy(head(f.clamp(-c, c)), y, reduction="none"))

    largest = float(f.abs().max())
    if not 0 < largest < math.inf:
        return math.inf
    unclipped = float(weight @ F.cross_entropy(head(f), y, reduction="none"))
    candidates = math.log(largest) + np.linspace(math.log(LOWEST), 0.0, N_CANDIDATES)
    best = int(np.argmin([loss(log_c) for log_c in candidates]))
    around = candidates[max(0, best - 1)], candidates[min(best + 1, N_CANDIDATES - 1)]
    found = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-9})
    return math.exp(found.x) if found.fun < unclipped else math.inf


class _Features(nn.Module):
    """A network that returns the input of its last linear layer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *args: Any, **keywords: Any) -> Tensor:
        seen: list[Tensor] = []
        with _head(self.network).register_forward_pre_hook(lambda head, given: seen.append(given[0])):
            self.network(*args, **keywords)
        if len(seen) != 1 or seen[0].ndim != 2:
            raise _unsuitable(f"it is called {len(seen)} times, or for several vectors")
        return seen[0]


def _head(network: nn.Module) -> nn.Linear:
    _, head = head_of(network)
    if head is None:
        raise _unsuitable(f"{type(network).__name__} has no linear layer")
    return head


def _check(of_head: Tensor, logits: Tensor) -> None:
    """Check that the last linear layer returns what the network does, up to rounding."""
    rounding = 1e-3 * float(logits.abs().max())
    if of_head.shape != logits.shape or not torch.allclose(of_head, logits, rtol=0, atol=rounding):
        raise _unsuitable("the network returns something else")


def _unsuitable(reason: str) -> ConfigError:
    return ConfigError(
        "Feature clipping needs a network whose last linear layer is called once, with one vector for each row, and "
        f"returns the logits; here {reason}. Use a network such as models.mlp, or another calibrator."
    )
