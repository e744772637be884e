"""The experiments on images: papers, profiles, and running them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from selfcal._support.checks import one_of, positive_int
from selfcal._support.parallel import Row
from selfcal.errors import ConfigError
from selfcal.experiments import loss_functions, meta_regularization
from selfcal.experiments._images import Profile

PAPERS = {"meta-regularization": meta_regularization, "loss-functions": loss_functions}


def profile_of(paper: str, name: str, *, dataset: str | None = None, seeds: int | None = None) -> Profile:
    """A paper's profile of that name, optionally on other images or with another number of seeds.

    Example:
        >>> profile_of("loss-functions", "small", seeds=1).networks
        {'resnet18': 8, 'resnet50': 4, 'vgg16': 8}
    """
    profiles = PAPERS[one_of("paper", paper, PAPERS)].PROFILES
    profile = profiles[one_of("profile", name, profiles)]
    return replace(
        profile,
        dataset=dataset or profile.dataset,
        seeds=profile.seeds if seeds is None else positive_int("seeds", seeds),
    )


def announce(paper: str, profile: Profile, data_dir: Path, *, long_run: bool = False) -> str:
    """Estimate the cost of a run here; the full setting without a GPU is an error unless `long_run` is set."""
    experiment = PAPERS[paper].experiment(profile, data_dir)
    cost = (
        f"{len(experiment.units())} training runs, about {experiment.hours():,.1f} hours in one process here"
    )
    if profile.needs_gpu and not (torch.cuda.is_available() or long_run):
        raise ConfigError(
            f"The paper's full setting needs a GPU, and torch finds none: {cost}. "
            "Use --profile small, or --long-run to start anyway."
        )
    return f"{paper} on {profile.dataset}: {cost}."


def reproduce(
    paper: str,
    profile: Profile,
    data_dir: Path,
    out: Path,
    *,
    jobs: int = 1,
    progress: bool | None = None,
) -> list[Row]:
    """Run the missing units and write `results.json`, `table.md`, reports and the figures into `out`."""
    experiment = PAPERS[paper].experiment(profile, data_dir)
    rows = experiment.run(
        out, jobs=positive_int("jobs", jobs), title=f"Reproducing {paper}", progress=progress
    )
    PAPERS[paper].write(rows, out)
    experiment.reports(out, PAPERS[paper].METHODS)
    return rows
