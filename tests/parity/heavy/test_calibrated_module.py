"""`CalibratedModule` under Lightning's trainer, beside the same steps in a plain loop."""

import doctest

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from selfcal import Batch, BilevelStep, recipes
from selfcal.errors import ConfigError
from selfcal.models import mlp
from selfcal.optimizers import Adam

lightning = pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own about the machine
from selfcal.integrations import lightning as tested  # noqa: E402 # needs Lightning
from selfcal.integrations.lightning import CalibratedModule  # noqa: E402

X = torch.randn(150, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def loaders(seed=None):
    """Training, outer and validation rows; with a seed, the training rows are shuffled."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    shuffled = {"shuffle": generator is not None, "generator": generator}
    parts = (
        TensorDataset(X[:90], Y[:90]),
        TensorDataset(X[90:120], Y[90:120]),
        TensorDataset(X[120:], Y[120:]),
    )
    return DataLoader(parts[0], batch_size=15, **shuffled), DataLoader(parts[1], 10), DataLoader(parts[2], 7)


def module(**changed):
    torch.manual_seed(0)
    settings = {"recipe": recipes.bo4sc(inner_steps=4), "optimizer": Adam(lr=0.01)} | changed
    return CalibratedModule(mlp(4, 2, hidden=(16,)), *loaders(), **settings)


def trainer(folder, max_epochs=4, **options):
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
    }
    return lightning.Trainer(max_epochs=max_epochs, default_root_dir=folder, **quiet, **options)


def test_it_is_the_plain_loop(tmp_path):
    mine = module()
    fit = trainer(tmp_path, enable_checkpointing=False)
    fit.fit(mine)
    torch.manual_seed(0)
    plain = mlp(4, 2, hidden=(16,))
    step = BilevelStep(plain, Adam(lr=0.01), recipes.bo4sc(inner_steps=4), n_train=90)
    outer = [batch for _ in range(2) for batch in loaders()[1]]
    for number in range(24):
        rows = torch.arange(15) + 15 * (number % 6)
        batch = Batch(X[rows], Y[rows], rows)
        step(batch, outer[number // 4] if step.outer_due else None)
    for own, expected in zip(mine.network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, expected)
    torch.testing.assert_close(mine.outer_params["weight"], step.outer_params["weight"])
    assert fit.global_step == mine.bilevel.count == 24
    logits = mine(X[120:]).detach()
    log_loss = torch.nn.functional.cross_entropy(logits, Y[120:])
    assert fit.callback_metrics["val_loss"].item() == pytest.approx(log_loss.item(), rel=1e-5)
    right = (logits.argmax(dim=1) == Y[120:]).float().mean()
    assert fit.callback_metrics["val_accuracy"].item() == pytest.approx(right.item())
    assert {"train_loss", "outer_loss", "val_ece", "val_brier_score"} <= {*fit.callback_metrics}


def test_a_checkpoint_continues_the_outer_level(tmp_path):
    whole = module()
    trainer(tmp_path / "whole", enable_checkpointing=False).fit(whole)
    first = module()
    begun = trainer(tmp_path / "parts", max_epochs=2)
    begun.fit(first)
    written = begun.checkpoint_callback.best_model_path
    assert written.endswith("step=12.ckpt")
    second = module()
    trainer(tmp_path / "parts", enable_checkpointing=False).fit(second, ckpt_path=written)
    assert second.bilevel.count == 24
    assert not torch.equal(first.outer_params["weight"], second.outer_params["weight"])
    torch.testing.assert_close(second.outer_params["weight"], whole.outer_params["weight"])
    for own, expected in zip(second.network.parameters(), whole.network.parameters(), strict=True):
        torch.testing.assert_close(own, expected)


def test_it_is_calibrated_on_held_out_rows(tmp_path):
    mine = module(recipe="temperature")
    trainer(tmp_path, max_epochs=8, enable_checkpointing=False).fit(mine)
    model = mine.calibrated()
    assert model.calibrator_.temperature_ > 0
    probs = model.predict_proba(loaders()[2])
    assert probs.shape == (30, 2)
    np.testing.assert_allclose(probs.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("auto", "must be a Recipe"),
        ("mc_dropout", "Use selfcal.train"),
        ("dynamic_pruning", "Use selfcal.train"),
    ],
)
def test_methods_it_does_not_run(recipe, message):
    with pytest.raises(ConfigError, match=message):
        module(recipe=recipe)


def test_the_outer_level_needs_rows():
    with pytest.raises(ConfigError, match="outer_loader"):
        CalibratedModule(mlp(4, 2), loaders()[0], recipe="bo4sc")


def test_the_example():
    ran = doctest.testmod(tested)
    assert ran.attempted
    assert not ran.failed
