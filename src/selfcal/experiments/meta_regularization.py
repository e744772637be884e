"""Tables 1 and 2 and figures 2 to 5 of "Towards unbiased calibration using meta-regularization".

Every recipe trains the same network on the same part of the training images; another part is for the outer level (and
for the temperature of CE), a third for choosing a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selfcal import Recipe, plots, recipes
from selfcal._support.files import write_atomically
from selfcal._support.parallel import Row
from selfcal.experiments._images import (
    SWEPT_BINS,
    ImageExperiment,
    Profile,
    binned_rows,
    epochs_figure,
    over_epochs,
)
from selfcal.experiments._tables import image_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "standard": "CE",
    "early_stopped": "CE, early-stopped",
    "temperature": "CE (TS)",
    "focal_05": "Focal (γ = 0.5)",
    "focal": "Focal",
    "focal_2": "Focal (γ = 2)",
    "focal_3": "Focal (γ = 3)",
    "focal_5": "Focal (γ = 5)",
    "focal_chosen": "Fixed γ, the best on validation rows",
    "flsd": "FLSD",
    "label_smoothing_005": "LS (0.05)",
    "label_smoothing_01": "LS (0.1)",
    "mixup": "Mixup",
    "mmce": "MMCE",
    "ce_dece": "CE-DECE",
    "ce_sece": "CE-SECE",
    "gamma_net": "FL_γ",
    "gamma_net_dece": "FL_γ-DECE",
    "gamma_net_sece": "FL_γ-SECE",
    "gamma_net_sece_slow": "FL_γ-SECE, small steps",
    "gamma_net_mmce": "FL_γ-MMCE, small steps",
}
LEARNS_GAMMA = ("gamma_net", "gamma_net_dece", "gamma_net_sece")
SMALL_STEPS = ("gamma_net_sece_slow", "gamma_net_mmce")
DRAWN = ("standard", "focal", "flsd", "ce_dece", "gamma_net_dece", "gamma_net_sece", *SMALL_STEPS)
FIXED_GAMMA = ("standard", "focal_05", "focal", "focal_2", "focal_3", "focal_5")
OF_THE_PAPER = (
    "standard",
    "focal",
    "flsd",
    "label_smoothing_005",
    "label_smoothing_01",
    "mixup",
    "mmce",
    "ce_dece",
    "ce_sece",
    *LEARNS_GAMMA,
)
PROFILES = {
    "paper": Profile("cifar10", {"resnet18": 64}, epochs=350, seeds=5, needs_gpu=True),
    "small": Profile(
        "fashion-mnist",
        {"resnet18": 8},
        epochs=20,
        seeds=3,
        rows=6000,
        parts=(0.4, 0.4, 0.2),
        test_rows=2000,
        every=5,
        augment=False,
        choose="last",
    ),
    "narrow": Profile(
        "fashion-mnist",
        {"resnet8": 8},
        epochs=160,
        seeds=3,
        rows=7000,
        parts=(1 / 7, 2 / 7, 4 / 7),
        test_rows=2000,
        choose="last",
        runs=(*FIXED_GAMMA, "flsd", *LEARNS_GAMMA, *SMALL_STEPS),
        curve_every=8,
        batch_size=32,
    ),
}
"""The paper's setting, and one of the same code for two cores: without augmentation, so that a narrow network
over-fits in twenty epochs; with as many outer rows as training rows, as a few hundred cannot show an error of two
points; and with the last state, as the best of twenty errors on 1,200 rows is mostly noise. The narrow one has a
smaller network and the paper's augmentation, and 5,120 outer steps a run, one for every batch."""


def trained(profile: Profile) -> dict[str, Recipe]:
    """The recipes of the table, with an outer step as often as the profile says."""
    every = profile.every
    known = {
        "standard": recipes.standard(),
        "focal_05": recipes.focal(gamma=0.5),
        "focal": recipes.focal(gamma=1.0),
        **{f"focal_{gamma}": recipes.focal(gamma=float(gamma)) for gamma in (2, 3, 5)},
        "flsd": recipes.flsd(),
        "label_smoothing_005": recipes.label_smoothing(smoothing=0.05),
        "label_smoothing_01": recipes.label_smoothing(smoothing=0.1),
        "mixup": recipes.mixup(alpha=1.0),
        "mmce": recipes.mmce(),
        "ce_dece": recipes.ce_dece(every=every),
        "ce_sece": recipes.ce_sece(every=every),
        "gamma_net": recipes.gamma_net(every=every),
        "gamma_net_dece": recipes.gamma_net_dece(every=every),
        "gamma_net_sece": recipes.gamma_net_sece(every=every),
        "gamma_net_sece_slow": recipes.gamma_net_sece(every=every, outer_lr=1e-5),
        "gamma_net_mmce": recipes.gamma_net_mmce(every=every),
    }
    return {run: known[run] for run in profile.runs or OF_THE_PAPER}


def experiment(profile: Profile, data_dir: Path) -> ImageExperiment:
    """The paper's table at some size, or the runs of the profile."""
    name = "meta-regularization" if profile.runs is None else "meta-regularization-narrow"
    return ImageExperiment(name, profile, trained(profile), data_dir)


def with_chosen_gamma(rows: Sequence[Row]) -> list[Row]:
    """The rows, and for each seed once more the fixed γ with the lowest ECE on the rows for selection.

    The choice is among the γ that all seeds have.
    """
    seeds = {row["seed"] for row in rows}
    by_method = {method: [row for row in rows if row["method"] == method] for method in FIXED_GAMMA}
    candidates = [own for own in by_method.values() if {row["seed"] for row in own} == seeds]
    if len(candidates) < 2:
        return list(rows)
    chosen = [
        min(
            (row for own in candidates for row in own if row["seed"] == seed), key=itemgetter("selection_ece")
        )
        for seed in sorted(seeds)
    ]
    return [*rows, *({**row, "method": "focal_chosen"} for row in chosen)]


def write(rows: Sequence[Row], out: Path) -> None:
    """The table and the figures of finished rows."""
    narrow = any(row["network"] in PROFILES["narrow"].networks for row in rows)
    write_atomically(out / "table.md", image_tables(with_chosen_gamma(rows) if narrow else rows, METHODS))
    for name, figure in figures(rows).items():
        plots.save_figure(figure, out / (f"meta-narrow-{name}" if narrow else f"meta-{name}"))


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Reliability of the first seed; ECE by epoch, gamma by epoch and errors by bins over all seeds."""
    by_method = {method: [row for row in rows if row["method"] == method] for method in METHODS}
    drawn = {METHODS[m]: by_method[m] for m in DRAWN if by_method[m]}
    gamma = {METHODS[m]: by_method[m] for m in (*LEARNS_GAMMA, *SMALL_STEPS) if by_method[m]}
    return {
        "reliability": plots.reliability_figure({name: binned_rows(rows[0]) for name, rows in drawn.items()}),
        "ece-by-epoch": epochs_figure(
            {"ECE % on test images": {name: over_epochs(rows, "ece") for name, rows in drawn.items()}}
        ),
        "gamma-by-epoch": plots.curves_figure(
            {
                title: {name: over_epochs(rows, column) for name, rows in gamma.items()}
                for title, column in (("mean of γ", "gamma_mean"), ("standard deviation of γ", "gamma_sd"))
            },
            xlabel="epoch",
        ),
        "errors-by-bins": plots.curves_figure(
            {
                title: {
                    name: (SWEPT_BINS, np.array([row["by_bins"][column] for row in rows]))
                    for name, rows in drawn.items()
                }
                for title, column in (("ECE %", "ece"), ("MCE %", "mce"))
            },
            xlabel="number of bins",
            log_x=True,
        ),
    }
