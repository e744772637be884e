"""The targets, evaluated on the cells: each line says what was measured, and whether the target is met."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks._quality_board import Board, Gap
from benchmarks._quality_methods import AUTO, LABELS, PLAIN, REFERENCE, TOLD

BUDGET = 60.0
"""Seconds that `auto` may take by default."""

CLOSED, ERROR_RATIO = 0.5, 0.7
PEERS = {REFERENCE: 11, "sklearn-hgb": 10, "lightgbm": 10, "catboost": 8, "realmlp": 8, "tabm": 8}
"""On how many of eleven tables the log loss must be lower than theirs."""


@dataclass(frozen=True)
class Target:
    """A sentence, what was found, and whether it is enough; `met` is None where it could not be measured."""

    text: str
    found: str
    met: bool | None

    def __str__(self) -> str:
        verdict = {True: "met", False: "**missed**", None: "not measured"}[self.met]
        return f"{self.text}: {self.found}; {verdict}" if self.found else f"{self.text}: {verdict}"


def targets(board: Board, method: str = AUTO) -> list[Target]:
    """All of them, in the order of the page."""
    return [*_on_generated(board, method), *_on_tables(board, method), *_on_wrong_labels(board, method)]


def _on_generated(board: Board, method: str) -> Iterator[Target]:
    """Against the reference, and against plain early stopping: a temperature fitted on few rows can go astray."""
    names = board.sets(0.0, "generated")
    for other in (REFERENCE, PLAIN):
        yield _count(
            board,
            method,
            other,
            names,
            enough=1.0,
            where="Generated sets",
            wanted=lambda gap: gap.mean < 0 and gap.clear,
            words="clearly lower log loss than",
        )
        share, counted = board.share_closed(0.0, names, method, other)
        yield Target(
            f"Generated sets, {LABELS[method]} closes at least {100 * CLOSED:.0f}% of the distance of "
            f"{LABELS[other]} to Bayes, on their mean",
            f"{100 * share:.1f}% over {counted} sets" if counted else "",
            share >= CLOSED if counted else None,
        )
        errors = [
            [board.mean("noise_free_error", 0.0, name, m)[0] for m in (method, other)] for name in names
        ]
        known = np.array([pair for pair in errors if np.isfinite(pair).all()]).reshape(-1, 2)
        ratio = float(known[:, 0].sum() / known[:, 1].sum()) if len(known) else np.nan
        yield Target(
            f"Generated sets, {LABELS[method]} has at most {ERROR_RATIO} times the noise-free calibration error of "
            f"{LABELS[other]}, on their mean",
            f"{ratio:.2f} times over {len(known)} sets" if len(known) else "",
            ratio <= ERROR_RATIO if len(known) else None,
        )
    yield _count(board, method, "ensemble", names, enough=4 / 5, where="Generated sets")


def _on_tables(board: Board, method: str) -> Iterator[Target]:
    names = board.sets(0.0, "table")
    for other, of_eleven in PEERS.items():
        yield _count(board, method, other, names, enough=of_eleven / 11, where="Tables")
    for other in PEERS:
        yield _count(
            board,
            method,
            other,
            names,
            missable=1,
            where="Tables",
            wanted=lambda gap: not (gap.mean > 0 and gap.clear),
            words="no clearly higher log loss than",
        )
    yield _accuracy(board, method, names)
    seconds = [v for name in names for v in board.values("wall_seconds", 0.0, name, method).values()]
    yield Target(
        f"Tables, {LABELS[method]} ends within its budget of {BUDGET:.0f} s on every one",
        f"at most {max(seconds):.0f} s" if seconds else "",
        max(seconds) <= BUDGET if seconds else None,
    )


def _accuracy(board: Board, method: str, names: Sequence[str]) -> Target:
    """Against the best of the peers on each table, which is chosen with hindsight."""
    gaps = {}
    for name in names:
        means = {other: board.mean("accuracy", 0.0, name, other)[0] for other in PEERS}
        known = {other: mean for other, mean in means.items() if np.isfinite(mean)}
        if known:
            best = max(known, key=lambda other: known[other])
            gaps[name] = board.gap("accuracy", 0.0, name, method, best)
    return _verdict(
        f"Tables, {LABELS[method]} has accuracy within a standard error of, or above, the best of these peers",
        {name: gap for name, gap in gaps.items() if gap is not None},
        names,
        enough=8 / 11,
        wanted=lambda gap: not gap.mean < -np.nan_to_num(gap.error),
    )


def _on_wrong_labels(board: Board, method: str) -> Iterator[Target]:
    """With `noisy_labels=True`, as a filter also assumes label noise, and without it."""
    names, where = board.sets(0.4), "40% wrong labels"
    for ours in (TOLD, method):
        yield _count(board, ours, "cleanlab", names, enough=1 / 2, noise=0.4, where=where)
    yield _count(
        board,
        TOLD,
        "cleanlab",
        names,
        enough=1.0,
        noise=0.4,
        score="audit_auc",
        where=where,
        wanted=lambda gap: gap.mean >= 0,
        words="an area under the curve of the label audit no lower than",
    )


def _count(
    board: Board,
    method: str,
    other: str,
    names: Sequence[str],
    *,
    enough: float = 1.0,
    missable: int = 0,
    wanted: Callable[[Gap], bool] = lambda gap: gap.mean < 0,
    score: str = "log_loss",
    words: str = "lower log loss than",
    noise: float = 0.0,
    where: str,
) -> Target:
    """On how many of the sets that both methods have the difference is as wanted."""
    gaps = {name: gap for name in names if (gap := board.gap(score, noise, name, method, other)) is not None}
    text = f"{where}, {LABELS[method]} has {words} {LABELS[other]}"
    return _verdict(text, gaps, names, enough=enough, missable=missable, wanted=wanted)


def _verdict(
    text: str,
    gaps: Mapping[str, Gap],
    names: Sequence[str],
    *,
    enough: float = 1.0,
    missable: int = 0,
    wanted: Callable[[Gap], bool],
) -> Target:
    """`enough` is a fraction of the sets with a difference, of which `missable` more may be missed."""
    if not gaps:
        return Target(text, "", None)
    missed = [name for name, gap in gaps.items() if not wanted(gap)]
    count, needed = len(gaps) - len(missed), math.ceil(enough * len(gaps) - 1e-9) - missable
    found = f"on {count} of {len(gaps)} sets, at least {needed} wanted"
    if missed:
        found += f" (not on {', '.join(missed)})"
    if len(gaps) < len(names):
        found += f"; {len(names) - len(gaps)} more sets are not measured"
    return Target(text, found, count >= needed)
