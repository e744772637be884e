"""Figure 1 of the loss-functions report: ECE by epoch for four losses and three networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from selfcal import plots, recipes
from selfcal._support.checks import Float
from selfcal._support.files import write_atomically
from selfcal._support.parallel import Row
from selfcal.experiments._images import ImageExperiment, Profile, epochs_figure, over_epochs
from selfcal.experiments._tables import image_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "standard": "Cross-entropy",
    "early_stopped": "Cross-entropy, early-stopped",
    "temperature": "Cross-entropy (TS)",
    "entropy": "Entropy regularisation",
    "lp_norm": "L1 norm of the logits",
    "focal": "Focal",
}
RECIPES = {
    "standard": recipes.standard(),
    "entropy": recipes.entropy(),
    "lp_norm": recipes.lp_norm(),
    "focal": recipes.focal(),
}
PROFILES = {
    "paper": Profile(
        "cifar10", {"resnet18": 64, "resnet50": 64, "vgg16": 64}, epochs=350, seeds=5, needs_gpu=True
    ),
    "small": Profile(
        "fashion-mnist",
        {"resnet18": 8, "resnet50": 4, "vgg16": 8},
        epochs=20,
        seeds=3,
        rows=6000,
        parts=(0.4, 0.4, 0.2),
        test_rows=2000,
        augment=False,
        choose="last",
    ),
}
"""CIFAR-10 at full width, with the schedule of the meta-regularisation paper, since this one states none; and the
same code for two cores, see `meta_regularization`."""


def experiment(profile: Profile, data_dir: Path) -> ImageExperiment:
    """The paper's figure at some size."""
    return ImageExperiment("loss-functions", profile, RECIPES, data_dir)


def write(rows: Sequence[Row], out: Path) -> None:
    """The table and the figures of finished rows."""
    write_atomically(out / "table.md", image_tables(rows, METHODS))
    for name, figure in figures(rows).items():
        plots.save_figure(figure, out / name)


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """ECE and error by epoch, a panel for each network."""
    networks = dict.fromkeys(row["network"] for row in rows)

    def curves(network: str, column: str) -> dict[str, tuple[Float, Float]]:
        return {
            METHODS[run]: over_epochs(
                [r for r in rows if r["network"] == network and r["method"] == run], column
            )
            for run in RECIPES
        }

    return {
        f"losses-{column}-by-epoch": epochs_figure(
            {network: curves(network, column) for network in networks}, f"{title} on test images"
        )
        for column, title in (("ece", "ECE %"), ("error", "error %"))
    }
