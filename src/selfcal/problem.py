"""A network and a recipe as a bilevel problem over one flat vector of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selfcal._random import streams_restored
from selfcal._types import Batch, OuterParams, Output
from selfcal.errors import ConfigError, DataError
from selfcal.interfaces import Evaluation, Problem, Recipe

BLOCK = 256
"""Rows per forward pass in prediction, always: single precision rounds differently in batches of other sizes,
and what is predicted for a row must not depend on the rows beside it."""


class BilevelProblem(Problem):
    """The inner and the outer loss of a recipe for one `nn.Module`.

    The flat vector `theta` holds the module's trainable parameters in their own order. The parameters
    themselves are set by `write` only; passes at any `theta` move buffers unless they are within `look_ahead`.
    """

    def __init__(self, module: nn.Module, recipe: Recipe) -> None:
        self.module = module
        self.recipe = recipe
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trainable:
            raise ConfigError("The network has no trainable parameters; expected at least one.")
        if len({(p.dtype, p.device) for p in trainable.values()}) > 1:
            raise ConfigError(
                "The network's trainable parameters must share one dtype and one device; "
                "got several. Try module.float().to(device)."
            )
        self._names = list(trainable)
        self._live = list(trainable.values())
        self._sizes = [p.numel() for p in self._live]
        self._written = self._versions()

    def read(self) -> Tensor:
        """The module's parameters as one flat vector (a copy)."""
        return torch.cat([p.detach().reshape(-1) for p in self._live])

    def write(self, theta: Tensor) -> None:
        """Set the module's parameters."""
        with torch.no_grad():
            for p, part in zip(self._live, theta.split(self._sizes), strict=True):
                p.copy_(part.view_as(p))
        self._written = self._versions()

    def changed_since_written(self) -> bool:
        """Whether somebody else has set parameters (clipped, loaded or averaged them) since `write`."""
        return self._versions() != self._written

    def _versions(self) -> list[int]:
        return [p._version for p in self._live]

    def output(self, theta: Tensor, batch: Batch) -> Output:
        """What the module says about the rows with its parameters at `theta`."""
        parts = zip(self._names, theta.split(self._sizes), self._live, strict=True)
        params = {name: part.view_as(p) for name, part, p in parts}
        return _as_output(functional_call(self.module, params, (batch.x,)))

    def training_loss(self, output: Output, outer: OuterParams, batch: Batch) -> Tensor:
        """The mean over the rows of weight times loss."""
        model = self.recipe.outer_model
        hyper = {} if model is None else model(outer, output, batch)
        weight = hyper.pop("weight", None)
        try:
            values = self.recipe.loss(output.logits, batch.y, **hyper)
        except IndexError:
            raise DataError(
                f"Labels must be class codes below the number of logits, {output.logits.shape[1]}; got "
                f"{int(batch.y.max())}. Give the network as many outputs as there are classes."
            ) from None
        for factor in (weight, batch.weight):
            if factor is not None:
                values = values * factor
        return values.mean()

    def evaluate(self, outer: OuterParams, batch: Batch) -> Evaluation:
        """The training loss and its gradient at the module's own parameters, as plain training has it.

        The forward pass is the module's own, so that BatchNorm statistics move as they should.
        """
        output = _as_output(self.module(batch.x))
        loss = self.training_loss(output, outer, batch)
        grads = torch.autograd.grad(loss, self._live, allow_unused=True, materialize_grads=True)
        return Evaluation(loss.detach(), torch.cat([g.reshape(-1) for g in grads]), output.detach())

    def outer(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Tensor:
        """The outer loss, with the network in the mode it will predict in."""
        assert self.recipe.objective is not None
        with evaluating(self.module):
            return self.recipe.objective(self.output(theta, batch), batch)

    @contextmanager
    def look_ahead(self) -> Iterator[None]:
        """Within it, passes through the network leave no trace in its buffers or in the random streams."""
        buffers = [(b, b.clone()) for b in self.module.buffers()]
        with streams_restored(self._live[0].device):
            try:
                yield
            finally:
                for buffer, before in buffers:
                    buffer.copy_(before)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within it, the module is in evaluation mode; afterwards every part is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def forward_in_blocks(module: nn.Module, x: Tensor) -> Tensor:
    """What the network returns for these rows in the mode it predicts in, whatever rows stand beside them."""
    blocks = [
        torch.cat([rows, rows.new_zeros(BLOCK - len(rows), *rows.shape[1:])]) for rows in x.split(BLOCK)
    ]
    with torch.no_grad(), evaluating(module):
        return torch.cat([module(block) for block in blocks])[: len(x)]


def _as_output(logits: object) -> Output:
    if isinstance(logits, Tensor) and logits.ndim == 2:
        return Output(logits)
    got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    raise ConfigError(f"The network must return logits of shape (rows, classes); got {got}.")
