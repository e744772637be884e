"""Fitting an ensemble: splits, candidates, their mixture and, if wanted, one network distilled from it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from selfcal._support.checks import Float, Int
from selfcal._support.progress import progress_bar
from selfcal._support.splits import split_groups
from selfcal.ensembles.distillation import cost_of_distilling, distil
from selfcal.ensembles.ensemble import Candidate, Ensemble, NetworkCandidate
from selfcal.ensembles.folds import Split
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
JUDGED, JUDGED_FOLDER = 0.2, "without-judged-rows"
"""The part of the rows that the cost of distillation is estimated on, and the folder of the checkpoints for that."""


@dataclass(frozen=True)
class FittedEnsemble:
    """The outcome of `fit_ensemble`.

    Attributes:
        module: The module that predicts: the networks as one, or the network distilled from them.
        probs: Out-of-fold probabilities of the ensemble; NaN for rows that all networks were trained on.
        records: The candidates from the largest weight to the least, as plain values.
        best: The candidate of the largest weight.
        result: The result of training it.
        distilled: What distillation costs, as `cost_of_distilling` returns it; None without a student.
    """

    module: nn.Module
    probs: Float
    records: list[dict[str, Any]]
    best: Candidate
    result: TrainingResult
    distilled: dict[str, Any] | None


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
            With `one_network`, as many again.
        started: When these seconds began, in seconds since the epoch; now by default.
        one_network: Distil the ensemble into one network. To estimate what that costs, the same is done without a
            part of the rows, `JUDGED`, on which these two are compared.
        n_jobs: Number of candidates that are trained at the same time.
    """
    begin = time.time() if started is None else started
    judging = 0.5 if one_network else 0.0

    def fitted(own: Rows, own_groups: Int, own_settings: MemberSettings, begin: float, at: float) -> _Fit:
        splits = ensemble.splitter.splits(own.y, own_groups, seed=settings.seed)
        trainers = [
            candidate.trainer(own, splits, one)
            for candidate, one in _with_folders(ensemble.candidates, own_settings)
        ]
        several = len(trainers) > 1
        budget, limit = (time_budget, time_budget) if several else (float("inf"), None)
        work = sum(trainer.expected_seconds for trainer in trainers) or None
        first = (1 - judging) * (1 - DISTILLING if one_network else 1)
        overall(at, "estimating the cost of one network" if at else "", first)
        with progress_bar("Candidates", work, settings.verbose, time_budget=limit, started=begin) as advance:
            selected = select(
                trainers,
                len(splits),
                own.y,
                own.weight,
                rounds=ensemble.splitter.rounds,
                budget=budget,
                deadline=begin + (1 - RESERVED) * budget,
                n_jobs=n_jobs,
                advance=advance,
            )
        if not one_network:
            return _Fit(selected, None)
        overall(at + first, "distilling one network", 1 - judging - first)
        return _Fit(selected, _distilled(selected, own, splits[0], own_settings))

    with progress_bar("Training", 1, settings.verbose, ends_early=True) as overall:
        whole = fitted(rows, groups, settings, begin, 0.0)
        selected, cost = whole.selected, None
        if whole.student is not None:
            kept, held_out = split_groups(rows.y, groups, (1 - JUDGED, JUDGED), seed=settings.seed)
            folder = None if settings.folder is None else settings.folder / JUDGED_FOLDER
            less = replace(settings, folder=folder)
            part = fitted(rows.taken(kept), groups[kept], less, time.time(), judging)
            assert part.student is not None
            judged, teacher = rows.taken(held_out), part.selected.module
            cost = cost_of_distilling(part.student, teacher, judged, groups[held_out], trained_on=len(kept))
    module = selected.module if whole.student is None else whole.student
    return FittedEnsemble(module, selected.probs, selected.records, selected.ranked[0], selected.result, cost)


class _Fit(NamedTuple):
    """The outcome of a selection, and the network distilled from it, if any."""

    selected: Selection
    student: nn.Module | None


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


def _distilled(selected: Selection, rows: Rows, split: Split, settings: MemberSettings) -> nn.Module:
    """One network of the kind of the largest weight, trained on the ensemble's probabilities."""
    kinds = (candidate.name for candidate in selected.ranked if isinstance(candidate, NetworkCandidate))
    kind = next(kinds, STUDENT)
    return distil(
        settings.make(kind, rows.x, settings.seed),
        selected.module,
        rows.x,
        torch.from_numpy(rows.y),
        split,
        optimizer=settings.optimizer(kind),
        **settings.training("distilled", kind, 0, len(rows.y)),
    ).module
