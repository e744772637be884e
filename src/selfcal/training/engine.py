"""The training loop. It calls the parts of a recipe and does not depend on the method."""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal._support.checks import positive_int
from selfcal._support.progress import progress_bar
from selfcal._support.random_streams import RandomStream, draws_globally, redirected
from selfcal.calibrators.temperature import best_log_beta
from selfcal.errors import ConfigError, DataError, RecoveryWarning
from selfcal.training.batches import Batches
from selfcal.training.checkpoint import checkpointed, identity
from selfcal.training.clipping import Clipped
from selfcal.training.disjoint import check_disjoint
from selfcal.training.distributed import gathered, largest, n_processes, own_part, rank, start, whole
from selfcal.training.history import History
from selfcal.training.inputs import call
from selfcal.training.interfaces import Calibrator, OptimizerRule
from selfcal.training.loader_batches import as_batches
from selfcal.training.problem import as_logits, evaluating, members_of
from selfcal.training.recipe import Recipe
from selfcal.training.run import RUNNING, Run
from selfcal.training.step import BilevelStep, StepReport
from selfcal.training.types import OuterParams

DEFAULT_STEPS = 1000
MIN_STEPS_TO_EVALUATE = 10
"""Steps between two evaluations by default at least, and before the first one where time runs out."""


@dataclass(frozen=True)
class TrainingResult:
    """The result of `train`; the module passed to it holds the chosen parameters.

    Attributes:
        module: The trained network, in evaluation mode, or what the recipe predicts with in its place.
        outer_params: The outer parameters of the chosen state.
        calibrator: The recipe's post-hoc calibrator, fitted on the outer data, if it has one.
        history: The course of training, as plain arrays.
        n_steps: Inner steps taken.
        best_step: The inner step whose state was chosen; the last one without selection data.
        status: ``"stopped early"``, ``"ran to the end"``, ``"out of time"`` or ``"stopped by the callback"``.
        seconds: Training time.
        kept_rows: Whether each training row was in the last pass; None if the recipe selects none.
    """

    module: nn.Module
    outer_params: OuterParams
    calibrator: Calibrator | None
    history: History
    n_steps: int
    best_step: int
    status: str
    seconds: float
    kept_rows: Tensor | None = None


@dataclass(frozen=True)
class TrainingEvent:
    """What `train` tells its callback about the evaluation that has just taken place.

    Attributes:
        step: The object that takes the steps, with the network (`problem.module`) and the outer parameters.
        n_steps: Inner steps taken so far.
        inner_loss: The training loss of the last step.
        outer_loss: The outer loss at the last outer step; None before the first.
        selection_loss: The log loss on the selection data; None without them.
    """

    step: BilevelStep
    n_steps: int
    inner_loss: float
    outer_loss: float | None
    selection_loss: float | None


def train(
    module: nn.Module,
    train_data: object,
    outer_data: object = None,
    selection_data: object = None,
    *,
    recipe: Recipe,
    optimizer: OptimizerRule,
    max_steps: int | None = None,
    max_epochs: int | None = None,
    max_seconds: float = math.inf,
    evaluate_every: int | None = None,
    patience: int | None = 20,
    refine: bool = False,
    callback: Callable[[TrainingEvent], object] = lambda event: None,
    clip_norm: float | None = None,
    device: str | torch.device | None = None,
    precision: str = "full",
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
) -> TrainingResult:
    """Train a network by a recipe.

    The three data sets must be disjoint: `train_data` for the inner level, `outer_data` for the outer level,
    `selection_data` for early stopping. Early stopping on rows that the outer level fits would be biased. Without an
    outer level, a post-hoc calibrator may use the rows of early stopping as `outer_data`.

    If the loss or the parameters are no longer finite, training returns to the last evaluation where they were, and
    continues with half the step size, three times at most. If memory runs out, it returns there, too, and continues
    with batches of half the size; `max_steps` stays.

    Args:
        module: The network, from ``(rows, ...)`` to logits ``(rows, classes)``; trained in place. Its output may also
            be an object with `logits`. In training mode it may return the logits of several members,
            ``(rows, members, classes)``: the loss is the mean of theirs.
        train_data: Arrays or tensors ``(x, y)`` or ``(x, y, weight)``, a dictionary of them with ``labels``, or a
            `DataLoader` of such. If x is a tuple or a dictionary, the network is called as ``module(*x)`` or
            ``module(**x)``.
        outer_data: The same, for the outer level or the post-hoc calibrator; only needed if there is one.
        selection_data: The same; with it, the state with the lowest log loss on it is restored at the end.
        recipe: The method.
        optimizer: The inner optimiser rule.
        max_steps: Maximum number of inner steps; 1000 if `max_epochs` is not given either.
        max_epochs: Maximum number of passes over the training data.
        max_seconds: Stop after this time, but not before ten steps, with a last evaluation on the selection data.
            The result of a run that is stopped by it depends on the machine's speed.
        evaluate_every: Inner steps between two evaluations on the selection data; by default one pass over the
            training data, but at least 10 steps.
        patience: Stop after so many evaluations without improvement; None disables early stopping.
        refine: Take the log loss on the selection data after the best temperature, as is right for a network that is
            calibrated afterwards: training it for longer often improves its predictions but for their confidence.
        callback: Called with a `TrainingEvent` after every `evaluate_every` steps, and after the last one; training
            stops if it returns True.
        clip_norm: The largest norm of the training gradient, which is scaled down to it; hypergradients
            differentiate this, too.
        device: Where to train, such as ``"cuda"``; the network is moved there, and so is each batch. By default where
            the network is.
        precision: ``"bf16"`` for automatic mixed precision in training steps. The steps that a hypergradient
            differentiates, the outer level and evaluations have the full precision of the parameters.
        batch_size: Rows per batch where data is given as tensors; None for all rows at once.
        seed: Seeds dropout, and shuffling where data is given as tensors: the same seed gives bit-identical
            results. A `DataLoader` shuffles by its own generator, or without one by this seed.
        progress: Show a progress bar; by default only on a terminal.
        checkpoint: A folder for this run only. The run saves its state there; the same call with the same folder
            resumes it, however it ended, and on the CPU gives bit-identical results to a run without interruption.
            A run that came to its end continues if the call allows more steps.
            The first SIGTERM or SIGINT ends the run after a step, saved, with `Interrupted`.
        checkpoint_seconds: Time between two saves; longer if saving would take more than a fiftieth of it.

    Returns:
        The chosen network with its history.

    Example:
        >>> import torch
        >>> from selfcal import recipes, optimizers
        >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> module = torch.nn.Linear(2, 2)
        >>> result = train(module, (x[:40], y[:40]), (x[40:50], y[40:50]), (x[50:], y[50:]),
        ...                recipe=recipes.bo4sc(), optimizer=optimizers.Adam(lr=0.1), max_steps=50)
        >>> result.n_steps, result.outer_params["weight"].shape
        (50, torch.Size([40]))
    """
    _check_recipe(recipe, module, outer_data)
    if device is not None:
        module.to(_usable(device))
    optimizer = optimizer if clip_norm is None else Clipped(optimizer, clip_norm)
    start(_device(module))
    if n_processes() > 1 and len(members_of(module)) > 1:
        raise ConfigError(
            "Several processes must train one network; got networks that are trained side by side, as ensembles are. "
            "Train them in one process each, without torchrun; SelfCalibratedClassifier(n_jobs=...) does so."
        )
    batches = as_batches(train_data, batch_size=batch_size, seed=seed)
    outer = as_batches(outer_data, batch_size=batch_size, seed=seed + 1) if recipe.needs_outer_data else None
    selection = None if selection_data is None else as_batches(selection_data, batch_size=batch_size)
    if evaluate_every is None:
        evaluate_every = max(len(batches), MIN_STEPS_TO_EVALUATE)
    positive_int("evaluate_every", evaluate_every)
    max_steps = _steps(max_steps, max_epochs, len(batches))
    if patience is not None:
        positive_int("patience", patience)
    check_disjoint(
        is_bilevel=recipe.is_bilevel, train_data=batches, outer_data=outer, selection_data=selection
    )
    if recipe.is_bilevel and max_steps < recipe.inner_steps:
        warnings.warn(
            f"No outer step will be taken: max_steps={max_steps} is below inner_steps={recipe.inner_steps}.",
            stacklevel=2,
        )

    with RandomStream(_device(module), seed + (rank() << 40)).in_use():
        step = BilevelStep(module, optimizer, recipe, n_train=batches.n_rows, precision=precision)
        step.optimizer = optimizer.planned(max_steps)
        settings = {
            "seed": seed,
            "precision": precision,
            "evaluate_every": evaluate_every,
            "patience": patience,
            "refine": refine,
        }
        run = Run(
            step,
            own_part(step.selected(batches)),
            outer and own_part(outer),
            selection and own_part(selection),
        )
        run.mark_good()
        with (
            checkpointed(
                run,
                checkpoint,
                lambda: identity(step, settings, train=batches, outer=outer, selection=selection),
                seconds=checkpoint_seconds,
            ) as after_step,
            progress_bar(
                "Training", max_steps, progress if rank() == 0 else False, ends_early=selection is not None
            ) as advance,
        ):
            run.extend(max_steps)
            module.train()
            while run.status == RUNNING:
                with run.recovering():
                    report = run.advance()
                    late = step.count >= MIN_STEPS_TO_EVALUATE and _out_of_time(run, max_seconds)
                    regular, last = step.count % evaluate_every == 0, step.count == max_steps
                    if late or regular or last:
                        step.check_finite()
                        advance(step.count, f"loss {report.inner_loss:.4f}")
                        losses = (
                            None
                            if run.selection is None
                            else selection_losses(module, run.selection, refine=refine)
                        )
                        loss = run.evaluated(losses, patience=patience, last=last, regular=regular)
                        if late:
                            run.out_of_time()
                        if callback(_event(run, report, loss)):
                            run.stopped()
                after_step()
        outer_params, best_step = (
            (step.outer_params, step.count) if run.best is None else run.best.restore(step)
        )
        module.eval()
        for recovery in run.recoveries():
            warnings.warn(recovery, RecoveryWarning, stacklevel=2)
        predicts, calibrator = _finished(recipe, module, batches, outer, seed)
    return TrainingResult(
        module=predicts,
        outer_params=outer_params,
        calibrator=calibrator,
        history=run.recorder.history(),
        n_steps=step.count,
        best_step=best_step,
        status=run.status,
        seconds=run.seconds,
        kept_rows=None if step.selection is None else step.selection.kept,
    )


def selection_losses(module: nn.Module, data: Batches, *, refine: bool = False) -> list[float]:
    """The mean log loss of each network on its rows, weighted by their sample weights.

    With `refine`, it is that of the logits divided by the best temperature of each network.
    """
    n_members = len(members_of(module))
    logits, y, weight = held_out_logits(module, data)
    logits, y = logits.double().view(n_members, -1, logits.shape[1]), y.view(n_members, -1)
    weight = torch.ones_like(logits[:, :, 0]) if weight is None else weight.view(n_members, -1).double()
    weight = weight.ldexp(-weight.amax(dim=1, keepdim=True).frexp().exponent)  # so that no sum overflows
    if refine and bool(logits.isfinite().all()):
        arrays = zip(*(part.cpu().numpy() for part in (logits, y, weight)), strict=True)
        logits = logits * logits.new_tensor([best_log_beta(*own) for own in arrays]).exp()[:, None, None]
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(n_members, -1)
    losses: list[float] = ((loss * weight).sum(dim=1) / weight.sum(dim=1)).tolist()
    return losses


def held_out_logits(module: nn.Module, data: Batches) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits, labels and sample weights of all rows, in batches and in the mode the network predicts in.

    With several networks side by side, the rows of the first network come first.
    """
    n_members, like = len(members_of(module)), next(module.parameters())

    def joined(parts: list[Tensor]) -> Tensor:
        return torch.cat([part.unflatten(0, (n_members, -1)) for part in parts], dim=1).flatten(0, 1)

    with torch.no_grad(), evaluating(module), redirected(draws_globally(module)):
        batches = [whole(batch.to(like)) for batch in data.one_pass(0)]
        if not batches:
            raise DataError("The held-out data must have at least one row; got none.")
        logits = joined([gathered(as_logits(call(module, batch.x)), len(batch.y)) for batch in batches])
    y, weights = joined([batch.y for batch in batches]), [batch.weight for batch in batches]
    if all(weight is None for weight in weights):
        return logits, y, None
    ones = (like.new_ones(len(batch.y)) for batch in batches)
    return logits, y, joined([o if w is None else w for o, w in zip(ones, weights, strict=True)])


def _finished(
    recipe: Recipe, module: nn.Module, data: Batches, outer: Batches | None, seed: int
) -> tuple[nn.Module, Calibrator | None]:
    """What predicts with the trained network, and a calibrator of its predictions."""
    if recipe.predictive is not None:
        rows = outer if recipe.predictive.held_out else data
        assert rows is not None, "the recipe was checked"
        module = recipe.predictive.fit(module, own_part(rows), seed=seed).eval()
    if recipe.calibrator is None or outer is None:
        return module, None
    logits, y, weight = held_out_logits(module, own_part(outer))
    sample_weight = None if weight is None else weight.cpu().numpy()
    calibrator = copy.deepcopy(recipe.calibrator)
    return module, calibrator.fit(logits.cpu().numpy(), y.cpu().numpy(), sample_weight)


def _out_of_time(run: Run, max_seconds: float) -> bool:
    """Whether the time is up in any process: clocks differ, and all must stop at the same step."""
    return math.isfinite(max_seconds) and bool(largest([run.seconds >= max_seconds])[0])


def _device(module: nn.Module) -> torch.device:
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


def _check_recipe(recipe: Recipe, module: nn.Module, outer_data: object) -> None:
    if not isinstance(recipe, Recipe):
        raise ConfigError(
            f"recipe must be a Recipe, which trains one network, such as selfcal.recipes.bo4sc(); got {recipe!r}. "
            "Methods that train several networks go to SelfCalibratedClassifier(method=...)."
        )
    if recipe.needs_outer_data and outer_data is None:
        raise ConfigError(
            f"Recipe {recipe.name!r} needs outer_data for its outer level or calibrator; got None. Pass rows that "
            "are held out from training."
        )
    if recipe.predictive is not None:
        recipe.predictive.check(module)


def _event(run: Run, report: StepReport, selection_loss: float | None) -> TrainingEvent:
    outer_loss = run.recorder.outer[-1][1] if run.recorder.outer else None
    return TrainingEvent(run.step, run.step.count, report.inner_loss, outer_loss, selection_loss)


def _usable(device: str | torch.device) -> torch.device:
    """The device, if this machine has it."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f'device must be one that this machine has, such as "cpu"; got {device!r} ({reason}).'
        ) from None
    return found


def _steps(max_steps: int | None, max_epochs: int | None, steps_per_epoch: int) -> int:
    """The maximum number of steps; with both limits, that of the first to be reached."""
    limits = [] if max_steps is None else [positive_int("max_steps", max_steps)]
    if max_epochs is not None:
        limits.append(positive_int("max_epochs", max_epochs) * max(1, steps_per_epoch))
    return min(limits, default=DEFAULT_STEPS)
