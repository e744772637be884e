"""Fitting an ensemble: splits, candidates, their mixture and, if wanted, one network distilled from it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from selfcal._support.checks import Float, Int
from selfcal._support.progress import progress_bar
from selfcal.ensembles.distillation import distil
from selfcal.ensembles.ensemble import Candidate, Ensemble, NetworkCandidate
from selfcal.ensembles.folds import Split
from selfcal.ensembles.mixing import mean_log_loss
from selfcal.ensembles.pooling import Selection
from selfcal.ensembles.selection import select
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows
from selfcal.training.engine import TrainingResult

RESERVED = 0.03
"""The part of the time budget for what follows training: weights, and predictions of all rows."""
DISTILLING = 0.1
"""The part of the progress bar for a distillation."""
STUDENT = "tabular"
"""The kind of network that is distilled from an ensemble without networks."""


@dataclass(frozen=True)
class FittedEnsemble:
    """The outcome of `fit_ensemble`.

    Attributes:
        module: The module that predicts: the networks as one, or the network distilled from them.
        probs: Out-of-fold probabilities of the ensemble; NaN for rows that all networks were trained on.
        records: The candidates from the largest weight to the least, as plain values.
        best: The candidate of the largest weight.
        result: The result of training it.
        distilled: Log losses of student and teacher on rows the student was not trained on; None without one.
    """

    module: nn.Module
    probs: Float
    records: list[dict[str, Any]]
    best: Candidate
    result: TrainingResult
    distilled: dict[str, float] | None


def fit_ensemble(
    ensemble: Ensemble,
    rows: Rows,
    groups: Int,
    settings: MemberSettings,
    *,
    time_budget: float,
    started: float | None = None,
    one_network: bool = False,
    n_jobs: int | None = None,
) -> FittedEnsemble:
    """Train the candidates of an ensemble and mix them.

    Args:
        ensemble: The ensemble to train.
        rows: All rows.
        groups: A number for each row, equal for rows that stay together in every split.
        settings: Settings of the networks and their training.
        time_budget: Seconds that the selection among several candidates may take; a single one is always trained.
        started: When these seconds began, in seconds since the epoch; now by default.
        one_network: Distil the ensemble into one network.
        n_jobs: Number of candidates that are trained at the same time.
    """
    splits = ensemble.splitter.splits(rows.y, groups, seed=settings.seed)
    trainers = [
        candidate.trainer(rows, splits, own)
        for candidate, own in _with_folders(ensemble.candidates, settings)
    ]
    budget = time_budget if len(trainers) > 1 else float("inf")
    begin = time.time() if started is None else started
    limit = time_budget if len(trainers) > 1 else None
    work = sum(trainer.expected_seconds for trainer in trainers) or None
    first = 1 - DISTILLING if one_network else 1.0
    with progress_bar("Training", 1, settings.verbose, ends_early=True) as overall:
        overall(0, size=first)
        with progress_bar("Candidates", work, settings.verbose, time_budget=limit, started=begin) as advance:
            selected = select(
                trainers,
                len(splits),
                rows.y,
                rows.weight,
                rounds=ensemble.splitter.rounds,
                budget=budget,
                deadline=begin + (1 - RESERVED) * budget,
                n_jobs=n_jobs,
                advance=advance,
            )
        module, losses = selected.module, None
        if one_network:
            overall(first, "distilling one network", DISTILLING)
            module, losses = _distilled(selected, rows, splits[0], settings)
    return FittedEnsemble(
        module, selected.probs, selected.records, selected.ranked[0], selected.result, losses
    )


def _with_folders(
    candidates: Sequence[Candidate], settings: MemberSettings
) -> Iterator[tuple[Candidate, MemberSettings]]:
    """Each candidate with its settings: one of the same name as another before it has another folder."""
    seen: Counter[tuple[str, str]] = Counter()
    for candidate in candidates:
        number = seen[candidate.name, candidate.method]
        seen[candidate.name, candidate.method] += 1
        if number and settings.folder is not None:
            yield candidate, replace(settings, folder=settings.folder / f"same-name-{number}")
        else:
            yield candidate, settings


def _distilled(
    selected: Selection, rows: Rows, split: Split, settings: MemberSettings
) -> tuple[nn.Module, dict[str, float]]:
    """One network of the kind of the largest weight, trained on the ensemble's probabilities."""
    kinds = (candidate.name for candidate in selected.ranked if isinstance(candidate, NetworkCandidate))
    kind = next(kinds, STUDENT)
    student = distil(
        settings.make(kind, rows.x, settings.seed),
        selected.module,
        rows.x,
        torch.from_numpy(rows.y),
        split,
        optimizer=settings.optimizer(kind),
        **settings.training("distilled", kind, 0, len(rows.y)),
    )
    held_out = split.held_out
    losses = {
        "log_loss": float(student.history.selection_loss.min()),
        "teacher_log_loss": mean_log_loss(selected.probs[held_out], rows.y[held_out], None),
    }
    return student.module, losses
