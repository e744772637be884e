"""Monte-Carlo dropout: the mean of several passes in which dropout stays on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from selfcal._support.checks import positive_int
from selfcal.errors import ConfigError, DataError, ModelFormatError
from selfcal.models.batch_ensemble import logits_of_mean
from selfcal.models.spec import Builder, Wrapper, spec_of, summary_of
from selfcal.training.inputs import Inputs, arguments, change
from selfcal.training.interfaces import Predictive
from selfcal.training.loader_batches import as_batches
from selfcal.training.problem import as_logits, evaluating, n_answers

ROWS_AT_ONCE = 4096
"""Rows times passes in one forward pass."""

Args = tuple[Tensor, ...]
Keywords = dict[str, Tensor]


@dataclass(frozen=True)
class MonteCarloDropout(Predictive):
    """Predict the mean probabilities of several passes with dropout, as a Bayesian approximation.

    Each pass drops the same units for every row: it is one network drawn from the approximate posterior. The masks
    are drawn once and stored with the network, so that predictions can be repeated, and do not depend on the other
    rows. Each row costs as much time as `passes` rows of the network alone.

    Args:
        passes: Number of passes.

    Example:
        >>> from selfcal.models import mlp
        >>> x, y = torch.zeros(6, 2), torch.zeros(6, dtype=torch.long)
        >>> module = MonteCarloDropout(passes=4).fit(mlp(2, 3, dropout=0.5), (x, y))
        >>> module(x).shape, module.member_logits(x).shape
        (torch.Size([6, 3]), torch.Size([4, 6, 3]))

    Reference:
        Gal and Ghahramani, Dropout as a Bayesian approximation: representing model uncertainty in deep learning,
        2016.
    """

    passes: int = 32

    def __post_init__(self) -> None:
        if positive_int("passes", self.passes) < 2:
            raise ConfigError("passes must be at least 2; got 1.")

    def check(self, module: nn.Module) -> None:
        """Raise a `ConfigError` for a network without dropout, or with a kind that no mask stands for."""
        if n_answers(module) > 1:
            raise ConfigError(
                "Monte-Carlo dropout needs a network with one answer; this one has several members. Use another, "
                "such as network='tabular'."
            )
        layers = _dropout_layers(module)
        if not layers:
            raise ConfigError(
                f"Monte-Carlo dropout needs a network with dropout; this {type(module).__name__} has none. Use one "
                "such as network='tabular', or add torch.nn.Dropout layers."
            )
        for layer in layers.values():
            if isinstance(layer, (nn.AlphaDropout, nn.FeatureAlphaDropout)) or layer.p >= 1:
                raise ConfigError(
                    f"Monte-Carlo dropout needs layers that drop a fraction below 1 and scale the rest; got {layer}. "
                    "Use torch.nn.Dropout."
                )

    def fit(self, module: nn.Module, data: object, *, seed: int = 0) -> DropoutPasses:
        """The network with masks for its dropout layers; one batch of `data` shows their shapes."""
        self.check(module)
        network = copy.deepcopy(module)
        x = next(iter(as_batches(data).one_pass(0))).to(next(network.parameters())).x
        x = change(x, lambda part: part[:2])
        shapes = _shapes_dropped(network, x)
        passes = DropoutPasses(network, self.passes, shapes)
        generator = torch.Generator().manual_seed(seed)
        for masks in passes.masks:
            assert isinstance(masks, Masks)
            masks.draw(generator)
        return passes.eval()


class DropoutPasses(Wrapper, key="dropout_passes"):
    """A network that predicts the mean probabilities of several passes, each with fixed dropout masks.

    All passes go through the network at once, as further rows.

    Args:
        network: The network, whose dropout layers apply the masks from now on.
        n_answers: Number of passes.
        shapes: The shape of a mask for one row, by the name of the dropout layer.
    """

    def __init__(self, network: nn.Module, n_answers: int, shapes: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self.network = network
        self.n_answers = n_answers
        self.shapes = {name: list(shape) for name, shape in shapes.items()}
        layers = _dropout_layers(network)
        self.masks = nn.ModuleList(
            Masks(n_answers, shape, layers[name].p) for name, shape in self.shapes.items()
        )
        for name, masks in zip(self.shapes, self.masks, strict=True):
            layers[name].register_forward_hook(masks)

    def member_logits(self, *args: Tensor, **keywords: Tensor) -> Tensor:
        """The logits of each pass, (passes, rows, classes)."""
        rows = next(iter((*args, *keywords.values())))
        if torch.compiler.is_exporting():  # where the number of rows is not known
            return self._passes(args, keywords)
        size = max(1, ROWS_AT_ONCE // self.n_answers)
        starts = range(0, max(len(rows), 1), size)
        blocks = [lambda part, start=start: part[start : start + size] for start in starts]
        return torch.cat([self._passes(*_changed(args, keywords, block)) for block in blocks], dim=1)

    def forward(self, *args: Tensor, **keywords: Tensor) -> Tensor:
        """The logarithm of the mean probabilities."""
        return logits_of_mean(self.member_logits(*args, **keywords))

    def _passes(self, args: Args, keywords: Keywords) -> Tensor:
        args, keywords = _changed(
            args, keywords, lambda part: part.repeat(self.n_answers, *[1] * (part.ndim - 1))
        )
        return as_logits(self.network(*args, **keywords)).unflatten(0, (self.n_answers, -1))

    def spec(self) -> dict[str, Any]:
        """The network, the number of passes and the shapes of the masks, which are buffers."""
        return {"network": spec_of(self.network), "passes": self.n_answers, "shapes": self.shapes}

    @classmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """The network by its spec, and masks of the same shapes."""
        passes, shapes = value["passes"], value["shapes"]
        sizes = [passes, *(size for shape in shapes.values() for size in shape)]
        if not shapes or not all(type(size) is int and size > 0 for size in sizes):
            raise ModelFormatError(
                "The number of passes and the shapes of masks must be positive whole numbers."
            )
        return cls(build(value["network"]), passes, shapes)

    def summary(self) -> str:
        """The network and the number of passes."""
        return f"{summary_of(self.network)}, {self.n_answers} passes with dropout"


class Masks(nn.Module):
    """The masks of a dropout layer, one for each pass; as a hook of the layer, it multiplies its output with them.

    Args:
        n_passes: Number of passes.
        shape: The shape of a mask, for one row.
        p: The fraction that is dropped.
    """

    kept: Tensor

    def __init__(self, n_passes: int, shape: Sequence[int], p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("kept", torch.ones(n_passes, *shape, dtype=torch.bool))

    def draw(self, generator: torch.Generator) -> None:
        """Draw new masks."""
        drawn = torch.empty(self.kept.shape).bernoulli_(1 - self.p, generator=generator)
        self.kept.copy_(drawn.bool())

    def forward(self, layer: nn.Module, given: object, output: Tensor) -> Tensor:
        """The output of the layer for the rows of all passes, one pass after the other, with its units dropped."""
        wanted, got = self.kept.shape[1:], output.shape[1:]
        if len(wanted) != len(got) or any(
            one not in (1, size) for one, size in zip(wanted, got, strict=True)
        ):
            raise DataError(
                f"Rows must have the same shape as those that the masks were drawn for: dropout of {tuple(wanted)}; "
                f"got {tuple(got)}. Pad them to one length."
            )
        by_pass = output.unflatten(0, (len(self.kept), -1))
        return (by_pass * (self.kept.to(output.dtype) / (1 - self.p)).unsqueeze(1)).flatten(0, 1)


def _dropout_layers(module: nn.Module) -> dict[str, _DropoutNd]:
    """The dropout layers that drop something, by name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, _DropoutNd) and part.p}


def _shapes_dropped(network: nn.Module, x: Inputs) -> dict[str, list[int]]:
    """The shape of a mask for one row of each dropout layer, in the order in which they are called."""
    shapes: dict[str, list[int]] = {}

    def watch(layer: nn.Module, given: object, output: Tensor, *, name: str) -> None:
        if name in shapes or len(output) != n_rows:
            raise ConfigError(
                f"Monte-Carlo dropout needs layers that are called once in a pass, with the rows first; {name!r} is "
                "not. Use a dropout layer for each place."
            )
        # layers such as Dropout2d drop whole channels
        whole = 1 if isinstance(layer, (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)) else output.ndim
        shapes[name] = [*output.shape[1 : 1 + whole], *[1] * max(output.ndim - 1 - whole, 0)]

    args, keywords = arguments(x)
    n_rows = len(next(iter((*args, *keywords.values()))))
    watched = [
        layer.register_forward_hook(partial(watch, name=name))
        for name, layer in _dropout_layers(network).items()
    ]
    try:
        with torch.no_grad(), evaluating(network):
            network(*args, **keywords)
    finally:
        for hook in watched:
            hook.remove()
    return shapes


def _changed(args: Args, keywords: Keywords, function: Callable[[Tensor], Tensor]) -> tuple[Args, Keywords]:
    return tuple(map(function, args)), {name: function(part) for name, part in keywords.items()}
