"""`BilevelStep` in a Lightning module with manual optimisation, beside the same steps in a plain loop."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from selfcal import Batch, BilevelStep, recipes
from selfcal.models import mlp
from selfcal.optimizers import Adam

lightning = pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own about the machine

X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
OUTER = (X[90:], Y[90:])


class Rows(Dataset):
    def __len__(self):
        return 90

    def __getitem__(self, i):
        return X[i], Y[i], i


class Classifier(lightning.LightningModule):
    def __init__(self, network):
        super().__init__()
        self.automatic_optimization = False
        self.network = network

    def configure_optimizers(self):
        return None

    def on_fit_start(self):
        recipe = recipes.bo4sc(inner_steps=5)
        self.bilevel = BilevelStep(self.network, Adam(lr=0.01), recipe, n_train=90)

    def training_step(self, batch, batch_idx):
        x, y, index = batch
        report = self.bilevel(Batch(x, y, index), OUTER if self.bilevel.outer_due else None)
        self.log("train_loss", report.inner_loss)


def network():
    torch.manual_seed(0)
    return mlp(4, 2, hidden=(16,))


def test_manual_optimisation_is_the_plain_loop(tmp_path):
    module = Classifier(network())
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(Rows(), batch_size=15))
    plain = network()
    step = BilevelStep(plain, Adam(lr=0.01), recipes.bo4sc(inner_steps=5), n_train=90)
    for _ in range(4):
        for x, y, index in DataLoader(Rows(), batch_size=15):
            step(Batch(x, y, index), OUTER if step.outer_due else None)
    assert module.bilevel.count == 24
    for own, expected in zip(module.network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, expected)
    weight = step.outer_params["weight"]
    assert weight.std() > 0
    torch.testing.assert_close(module.bilevel.outer_params["weight"], weight)
