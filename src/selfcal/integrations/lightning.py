"""A recipe as a Lightning module: its loop, loggers and checkpoints, and the steps of selfcal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from selfcal import recipes
from selfcal.calibrators import TemperatureScaling
from selfcal.errors import ConfigError
from selfcal.estimators.calibrated_model import CalibratedModel
from selfcal.metrics import CalibrationAccumulator
from selfcal.optimizers import Adam
from selfcal.training.batches import Endless, as_batch
from selfcal.training.inputs import call
from selfcal.training.interfaces import OptimizerRule
from selfcal.training.loader_batches import LoaderBatches
from selfcal.training.problem import as_logits
from selfcal.training.recipe import Recipe
from selfcal.training.step import BilevelStep

try:
    from lightning import LightningModule
except ImportError as error:
    raise ConfigError(
        f"selfcal.integrations.lightning needs Lightning; {error}. Run: pip install lightning"
    ) from None

__all__ = ["CalibratedModule"]

STATE = "selfcal"
"""The name of what a checkpoint has besides what Lightning stores."""


class CalibratedModule(LightningModule):
    """A network that is trained by a recipe under Lightning's `Trainer`, with manual optimisation.

    Checkpoints hold the outer parameters, the states of both optimisers and the place in the outer data, so that
    ``trainer.fit(module, ckpt_path=...)`` continues them. Recorded inner steps are not stored: after a checkpoint in
    between two outer steps, the next hypergradient of `Unrolled` sees only the steps since. One device is
    supported; `selfcal.train` runs under `torchrun`.

    Args:
        network: Returns logits, or an object with `logits`.
        train_loader: Training batches, as in `selfcal.train`; rows get their index by themselves.
        outer_loader: Held-out batches for the outer level, one for each outer step, over and over; None without one.
        selection_loader: Held-out batches for validation: ``val_loss`` (log loss), ``val_accuracy``, ``val_ece`` and
            ``val_brier_score`` are logged.
        recipe: The method, by its name or as a `Recipe` for one network.
        optimizer: The inner optimiser.

    Example:
        >>> import lightning, torch
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> x, y = torch.randn(60, 2), torch.arange(60) % 2
        >>> parts = [DataLoader(TensorDataset(x[i], y[i]), batch_size=10) for i in torch.arange(60).split(20)]
        >>> module = CalibratedModule(torch.nn.Linear(2, 2), *parts, recipe="bo4sc")
        >>> trainer = lightning.Trainer(max_epochs=2, enable_progress_bar=False, logger=False)  # doctest: +SKIP
        >>> trainer.fit(module)  # doctest: +SKIP
    """

    def __init__(
        self,
        network: nn.Module,
        train_loader: DataLoader[Any],
        outer_loader: DataLoader[Any] | None = None,
        selection_loader: DataLoader[Any] | None = None,
        *,
        recipe: str | Recipe = "bo4sc",
        optimizer: OptimizerRule | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.network = network
        self.recipe = _usable(recipe, outer_loader)
        self.rule = Adam(lr=1e-3) if optimizer is None else optimizer
        self.train_batches = LoaderBatches(train_loader)
        self.outer_batches = None if outer_loader is None else Endless(LoaderBatches(outer_loader))
        self.outer_loader, self.selection_loader = outer_loader, selection_loader
        self._restored: dict[str, Any] | None = None
        self._seen: CalibrationAccumulator | None = None

    def forward(self, x: Any) -> Tensor:
        """The network's logits."""
        return as_logits(call(self.network, x))

    def train_dataloader(self) -> Any:
        """The loader of the training rows, with the indices of the rows."""
        return self.train_batches.indexed

    def val_dataloader(self) -> Any:
        """The loader of the selection rows, if there is one."""
        return [] if self.selection_loader is None else self.selection_loader

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """An optimiser that only counts steps: `BilevelStep` takes them."""
        return _Counted(self.network.parameters(), {})

    def on_fit_start(self) -> None:
        self.bilevel = BilevelStep(
            self.network, self.rule, self.recipe, n_train=self.train_batches.n_rows
        )  # made here, since Lightning moves the network before
        if self._restored is not None:
            self.bilevel.load_state(self._restored["step"])
            if self.outer_batches is not None:
                self.outer_batches.load_state(self._restored["outer"])
            self._restored = None

    def training_step(self, batch: Any, batch_idx: int) -> None:
        rows, index = batch
        train_batch = replace(as_batch(rows), index=index)
        due = self.bilevel.outer_due
        outer = next(self.outer_batches) if due and self.outer_batches is not None else None
        counted: Any = self.optimizers()
        report = counted.step(closure=lambda: self.bilevel(train_batch, outer))
        self.log("train_loss", report.inner_loss)
        if report.outer_loss is not None:
            self.log("outer_loss", report.outer_loss)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        rows = as_batch(batch)
        probs = torch.softmax(self(rows.x).double(), dim=-1).cpu().numpy()
        if self._seen is None:
            self._seen = CalibrationAccumulator(probs.shape[1])
        weight = None if rows.weight is None else rows.weight.cpu().numpy()
        self._seen.update(rows.y.cpu().numpy(), probs, weight)

    def on_validation_epoch_end(self) -> None:
        if self._seen is None:
            return
        scores, self._seen = self._seen.compute(), None
        for name in ("accuracy", "ece", "brier_score"):
            self.log(f"val_{name}", getattr(scores, name))
        assert scores.log_loss is not None, "accumulated by default"
        self.log("val_loss", scores.log_loss, prog_bar=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if hasattr(self, "bilevel"):
            outer = None if self.outer_batches is None else self.outer_batches.state()
            checkpoint[STATE] = {"step": self.bilevel.state(), "outer": outer}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._restored = checkpoint.get(STATE)

    @property
    def outer_params(self) -> dict[str, Tensor]:
        """The outer parameters by name, once the training has begun."""
        return self.bilevel.outer_params

    def calibrated(self, held_out: DataLoader[Any] | None = None) -> CalibratedModel:
        """The trained network with the calibrator of the recipe, or temperature scaling if it has none.

        Args:
            held_out: Batches to fit it on; by default those of the outer level, or else those for validation.
        """
        loader = held_out or self.outer_loader or self.selection_loader
        if loader is None:
            raise ConfigError("A calibrator needs held-out rows; got none. Pass a DataLoader.")
        return CalibratedModel(self.network, self.recipe.calibrator or TemperatureScaling()).fit(loader)


class _Counted(torch.optim.Optimizer):
    """Takes a whole step of `BilevelStep`, so that Lightning counts it and writes checkpoints at the right time."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        assert closure is not None
        return closure()


def _usable(recipe: str | Recipe, outer_loader: object) -> Recipe:
    found = recipes.named(recipe) if isinstance(recipe, str) else recipe
    if not isinstance(found, Recipe):
        raise ConfigError(
            f"recipe must be a Recipe, which trains one network; got {found!r}. Methods that train several networks "
            "go to SelfCalibratedClassifier(method=...)."
        )
    if found.selection is not None or found.predictive is not None:
        raise ConfigError(
            f"Recipe {found.name!r} selects rows or predicts by several answers, which CalibratedModule does not do. "
            "Use selfcal.train."
        )
    if found.is_bilevel and outer_loader is None:
        raise ConfigError(
            f"Recipe {found.name!r} needs outer_loader for its outer level; got None. Pass rows that are held out "
            "from training."
        )
    return found
