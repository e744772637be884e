"""A network and a recipe as a bilevel problem over one flat vector of parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selfcal._support.checks import one_of
from selfcal._support.random_streams import draws_globally, redirected, stream_in_use
from selfcal.errors import ConfigError, DataError
from selfcal.training.distributed import averaged, copied, from_first, gathered, n_processes, summed
from selfcal.training.inputs import Inputs, arguments, call, change, logits_in, named
from selfcal.training.interfaces import Evaluation, Problem
from selfcal.training.recipe import Recipe
from selfcal.training.types import Batch, NetworkParams, OuterParams, Output, Sizes

PRECISIONS = {"full": None, "bf16": torch.bfloat16}
"""The type of most operations in a training pass, where it is not that of the parameters."""

PREDICTION_ROWS = 256
"""Rows per forward pass in prediction, always: single precision rounds differently in batches of other sizes,
and the prediction for a row must not depend on the other rows."""


class BilevelProblem(Problem):
    """The inner and the outer loss of a recipe for one `nn.Module`.

    The flat vector `theta` holds the module's trainable parameters in their own order. Only `write` sets the
    parameters; passes at any `theta` update buffers unless they are within `look_ahead`.
    """

    def __init__(self, module: nn.Module, recipe: Recipe, *, precision: str = "full") -> None:
        self.module = module
        self.recipe = recipe
        self._precision = one_of("precision", precision, PRECISIONS)
        self._members = members_of(module)
        trainable = _trainable(module)
        if not trainable:
            raise ConfigError("The network must have trainable parameters; got no trainable parameters.")
        if len({(p.dtype, p.device) for p in trainable.values()}) > 1:
            raise ConfigError(
                "The network's trainable parameters must have one dtype and one device; "
                "got several. Try module.float().to(device)."
            )
        self._names = list(trainable)
        self._live = list(trainable.values())
        self._sizes = [p.numel() for p in self._live]
        self._written = self._versions()
        self._member_shapes = [
            {name: p.shape for name, p in _trainable(member).items()} for member in self._members
        ]
        model = recipe.outer_model
        device = self._live[0].device.type
        if precision != "full" and not torch.amp.is_autocast_available(device):
            raise ConfigError(
                f"precision={precision!r} needs a device with automatic mixed precision; got {device}. Use "
                'precision="full".'
            )
        self._head_name, self._head = head_of(module, None if model is None else model.layer)
        self._reads_head = model is not None and model.reads_head
        self._draws_globally = draws_globally(module, model)
        if self._reads_head and self._head is None:
            raise ConfigError(
                f"Recipe {recipe.name!r} reads the input of the network's last linear layer; this network, a "
                f"{type(module).__name__}, has no linear layer. End it with torch.nn.Linear(features, classes)."
            )

    def sizes(self, n_train: int) -> Sizes:
        """The dimensions of the problem."""
        shapes = self._member_shapes[0]
        if self._head is None:
            return Sizes(n_train, shapes=shapes)
        return Sizes(n_train, self._head.out_features, self._head.in_features, shapes)

    def read(self) -> Tensor:
        """The module's parameters as one flat vector (a copy)."""
        return torch.cat([p.detach().reshape(-1) for p in self._live])

    def write(self, theta: Tensor) -> None:
        """Set the module's parameters."""
        with torch.no_grad():
            for p, part in zip(self._live, theta.split(self._sizes), strict=True):
                p.copy_(part.view_as(p))
        self._written = self._versions()

    @property
    def n_members(self) -> int:
        """The number of networks, each with separate rows."""
        return len(self._members)

    def synchronize(self) -> None:
        """Start all processes from the network of the first one."""
        if n_processes() > 1:
            self.write(from_first(self.read()))
            self.keep([from_first(value) for value in self.kept()])

    def average_statistics(self) -> None:
        """Average what layers such as BatchNorm have recorded, each process from its part of the rows."""
        recorded = [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]
        if n_processes() > 1 and recorded:
            together = averaged(torch.cat([buffer.reshape(-1) for buffer in recorded]))
            for buffer, mean in zip(recorded, together.split([b.numel() for b in recorded]), strict=True):
                buffer.copy_(mean.view_as(buffer))

    def kept(self) -> list[Tensor]:
        """The networks' buffers and frozen parameters."""
        return [value for member in self._members for value in _buffers_and_frozen(member)]

    def keep(self, values: Iterable[Tensor]) -> None:
        """Set the values that `kept` returns."""
        for own, value in zip(self.kept(), values, strict=True):
            own.copy_(value)

    def changed_since_written(self) -> bool:
        """Whether parameters were set (clipped, loaded or averaged) by other code since `write`."""
        return self._versions() != self._written

    def _versions(self) -> list[int]:
        return [p._version for p in self._live]

    def output(self, theta: Tensor, batch: Batch) -> Output:
        """The module's output for the rows, with its parameters at `theta`."""
        parts = zip(self._names, copied(theta).split(self._sizes), self._live, strict=True)
        params = {name: part.view_as(p) for name, part, p in parts}
        args, keywords = arguments(batch.x)
        return self._observed(lambda: functional_call(self.module, params, args, keywords), len(batch.y))

    def training_output(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Output:
        """The output for the rows as transformed by the outer model."""
        with redirected(self._draws_globally):
            x = self._network_input({name: copied(value) for name, value in outer.items()}, batch.x)
        return self.output(theta, replace(batch, x=x))

    def training_loss(self, output: Output, outer: OuterParams, batch: Batch) -> Tensor:
        """The mean over the rows of weight times loss, plus the penalty if there is one.

        The loss of a network with several members is the mean of theirs.
        """
        model = self.recipe.outer_model
        hyper = batch.hyper if model is None else batch.hyper | model(outer, output, batch)
        weight, penalty = hyper.get("weight"), hyper.get("penalty")
        keywords = {name: value for name, value in hyper.items() if name not in ("weight", "penalty")}
        try:
            values = _mean([self._loss(logits, batch.y, keywords) for logits in output.by_member])
        except IndexError:
            raise DataError(
                f"Labels must be class codes below the number of logits, {output.logits.shape[-1]}; got "
                f"{int(batch.y.max())}. Give the network as many outputs as there are classes."
            ) from None
        for factor in (weight, batch.weight):
            if factor is not None:
                values = values * factor
        return values.mean() if penalty is None else values.mean() + penalty

    def _loss(self, logits: Tensor, y: Tensor, keywords: dict[str, Tensor]) -> Tensor:
        values = self.recipe.loss(logits, y, **keywords)
        if values.shape == y.shape[:1]:
            return values
        raise ConfigError(
            f"The loss of recipe {self.recipe.name!r} must return one value per row, of shape ({len(y)},), because "
            f'rows are weighted; got shape {tuple(values.shape)}. Use reduction="none".'
        )

    def update_term(self, theta: Tensor, outer: OuterParams) -> Tensor | None:
        """The outer model's part of the update as a flat vector; zero for parameters that it leaves out."""
        model = self.recipe.outer_model
        if model is None or not model.changes_update:
            return None
        members = self._by_member(theta)
        terms = model.update_term(outer, members)
        unknown = {name for term, member in zip(terms, members, strict=True) for name in term.keys() - member}
        if unknown:
            raise ConfigError(
                f"The update term of {model!r} must be given by the names of trainable parameters; got "
                f"{', '.join(sorted(unknown))}. Use the names in `members`."
            )
        return torch.cat(
            [
                (term[name] if name in term else torch.zeros_like(value)).reshape(-1)
                for member, term in zip(members, terms, strict=True)
                for name, value in member.items()
            ]
        )

    def evaluate(self, outer: OuterParams, batch: Batch, *, reduced: bool = False) -> Evaluation:
        """The training loss and its gradient at the module's own parameters, as in plain training.

        The forward pass is the module's own, so that BatchNorm statistics are updated. With `reduced`, it may run in
        the lower precision; a hypergradient differentiates no such pass.
        """
        with self._autocast(reduced):
            output = self._observed(
                lambda: call(self.module, self._network_input(outer, batch.x)), len(batch.y)
            )
        loss = self.training_loss(output, outer, batch)
        grads = torch.autograd.grad(loss, self._live, allow_unused=True, materialize_grads=True)
        grad = summed(torch.cat([g.reshape(-1) for g in grads]))
        return Evaluation(loss.detach(), grad, output.detach())

    def outer(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Tensor:
        """The outer loss, with the network in evaluation mode."""
        assert self.recipe.objective is not None
        with evaluating(self.module):
            output = self.output(theta, batch)
        value = self.recipe.objective(output, batch)
        if value.ndim:
            raise ConfigError(
                f"The objective must return one number; {self.recipe.objective!r} returned shape "
                f"{tuple(value.shape)}. Take its mean."
            )
        return value

    def hyperparameters(self, theta: Tensor, outer: OuterParams, batch: Batch) -> dict[str, Tensor]:
        """The outer model's hyperparameters for these rows, with the network in evaluation mode."""
        assert self.recipe.outer_model is not None
        with torch.no_grad(), evaluating(self.module):
            return self.recipe.outer_model(outer, self.output(theta, batch), batch)

    def _network_input(self, outer: OuterParams, x: Inputs) -> Inputs:
        model = self.recipe.outer_model
        return x if model is None else model.network_input(outer, x)

    def _autocast(self, reduced: bool) -> AbstractContextManager[object]:
        dtype = PRECISIONS[self._precision]
        if dtype is None or not reduced:
            return nullcontext()
        return torch.autocast(self._live[0].device.type, dtype)

    def _by_member(self, theta: Tensor) -> list[NetworkParams]:
        """The parameters of each network by their names in it; views of `theta`."""
        parts = iter(theta.split(self._sizes))
        return [
            {name: next(parts).view(shape) for name, shape in shapes.items()}
            for shapes in self._member_shapes
        ]

    def _observed(self, run: Callable[[], object], n_rows: int) -> Output:
        """The output of a pass for all rows, with the head's input and weight if the outer model reads them."""
        seen: list[tuple[Tensor, Tensor]] = []
        watched: AbstractContextManager[object] = nullcontext()
        if self._reads_head and self._head is not None:
            watched = self._head.register_forward_pre_hook(
                lambda head, given: seen.append(
                    (given[0].detach(), head.weight.clone())
                )  # `write` is in place
            )
        with watched, redirected(self._draws_globally):
            logits = as_logits(run(), members=self.module.training).to(self._live[0].dtype)
        logits = gathered(logits, n_rows)
        if not self._reads_head:
            return Output(logits)
        fits = len(seen) == 1 and seen[0][0].ndim == 2 and seen[0][1].shape[0] == logits.shape[-1]
        if not fits:
            raise ConfigError(
                f"The head of the network must be called once in a pass, with one vector for each row, and return "
                f"the {logits.shape[-1]} logits; the linear layer {self._head_name!r} was called {len(seen)} times. "
                "Name the right one with the outer model's `layer`."
            )
        features, head = seen[0]
        return Output(logits, gathered(features, n_rows), averaged(head))

    @contextmanager
    def look_ahead(self) -> Iterator[None]:
        """A context in which passes through the network change neither its buffers nor the random streams."""
        buffers = [(b, b.clone()) for b in self.module.buffers()]
        with stream_in_use(self._live[0].device).restored():
            try:
                yield
            finally:
                for buffer, before in buffers:
                    buffer.copy_(before)


def members_of(module: nn.Module) -> list[nn.Module]:
    """The module's `independent_members`, networks that are trained side by side; by default the module itself.

    Each of them has separate rows in every batch, in the order of the members, and its own best state.
    """
    members: list[nn.Module] = getattr(module, "independent_members", [module])
    return members


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A context in which the module is in evaluation mode; afterwards the mode of every part is restored."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def forward_in_blocks(module: nn.Module, x: Inputs) -> Tensor:
    """The network's logits for these rows in evaluation mode; each is independent of the other rows."""
    return _in_blocks(module, lambda rows: as_logits(call(module, rows)), x)


def n_answers(module: nn.Module) -> int:
    """The number of answers that `member_logits` of a module gives to each row; one without it."""
    return int(getattr(module, "n_answers", 1))


def members_in_blocks(module: nn.Module, x: Inputs) -> Tensor:
    """The logits of each answer of a module with `member_logits` and `n_answers`: (answers, rows, classes)."""

    def by_row(rows: Inputs) -> Tensor:
        args, keywords = arguments(rows)
        logits: Tensor = module.member_logits(*args, **keywords)  # type: ignore[operator] # not every Module has it
        return logits.transpose(0, 1)

    return _in_blocks(module, by_row, x).transpose(0, 1)


def _in_blocks(module: nn.Module, function: Callable[[Inputs], Tensor], x: Inputs) -> Tensor:
    n_rows = len(next(iter(named(x).values())))
    starts = range(0, max(n_rows, 1), PREDICTION_ROWS)
    with torch.no_grad(), evaluating(module):
        outputs = [function(change(x, partial(_block, start=start))) for start in starts]
    return torch.cat(outputs)[:n_rows]


def _block(part: Tensor, start: int) -> Tensor:
    rows = part[start : start + PREDICTION_ROWS]
    missing = PREDICTION_ROWS - len(rows)
    if not len(rows):
        return rows.new_zeros(missing, *rows.shape[1:])
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _buffers_and_frozen(module: nn.Module) -> list[Tensor]:
    """Buffers and frozen parameters."""
    return [*module.buffers(), *(p.detach() for p in module.parameters() if not p.requires_grad)]


def head_of(module: nn.Module, name: str | None = None) -> tuple[str, nn.Linear | None]:
    """The linear layer of that name, or the last one if there is any, and its name."""
    linear = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    if name is None:
        return list(linear.items())[-1] if linear else ("", None)
    return one_of("layer", name, linear), linear[name]


def as_logits(logits: object, *, members: bool = False) -> Tensor:
    """The output of a network, checked: (rows, classes) or, if they are allowed, (rows, members, classes)."""
    logits = logits_in(logits)
    if isinstance(logits, Tensor) and logits.ndim in ((2, 3) if members else (2,)):
        return logits
    got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    raise ConfigError(
        "The network must return logits of shape (rows, classes), or in training alone (rows, members, classes); "
        f"got {got}."
    )


def probabilities_of(logits: Tensor) -> str | None:
    """What the values look like the output of, if not logits: ``"softmax"``, ``"log_softmax"`` or None."""
    tolerance = max(torch.finfo(logits.dtype).eps, torch.finfo(torch.float32).eps) ** 0.5
    if logits.shape[-1] > 1 and len(logits):
        if bool((logits >= 0).all()) and bool(((logits.sum(dim=-1) - 1).abs() < tolerance).all()):
            return "softmax"
        if bool((logits.logsumexp(dim=-1).abs() < tolerance).all()):
            return "log_softmax"
    return None


def warn_of_probabilities(module: nn.Module, logits: Tensor) -> None:
    """Warn if what should be logits is the output of a softmax, or its logarithm."""
    found = probabilities_of(logits.detach())
    if found is None:
        return
    last = list(module.modules())[-1]
    layer = f"its last layer, {last}" if isinstance(last, (nn.Softmax, nn.LogSoftmax)) else f"the {found}"
    warnings.warn(
        f"The network must return logits, which the loss itself turns into probabilities; what this "
        f"{type(module).__name__} returns looks like the output of {found}. Remove {layer} from the network.",
        stacklevel=2,
    )


def _mean(values: Sequence[Tensor]) -> Tensor:
    """The mean loss of the members for each row."""
    return values[0] if len(values) == 1 else torch.stack(list(values)).mean(dim=0)
