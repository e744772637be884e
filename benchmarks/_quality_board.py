"""What the cells of the quality benchmark say when put together: means, paired differences, ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from benchmarks._quality_methods import LABELS, ORACLE, REFERENCE
from benchmarks._quality_sets import IMAGES, generated_sets, kind_of
from selfcal._support.checks import Float
from selfcal.experiments._tables import mean_and_error

Row = Mapping[str, Any]
DEVELOPMENT = 100
"""Seeds from here on were looked at while methods were made; reports are of those below."""

CLEAR = 2.0
"""Standard errors from which on a paired difference counts as clear."""


def is_reported(row: Row) -> bool:
    """Whether the row is of a seed for reports."""
    return bool(row["seed"] < DEVELOPMENT)


@dataclass(frozen=True)
class Gap:
    """One method's score less another's: the mean over the seeds both have, and its standard error."""

    mean: float
    error: float
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether it is more than two standard errors from zero; one seed cannot tell."""
        return bool(abs(self.mean) > CLEAR * self.error)


class Board:
    """The cells that did not fail, by fraction of wrong labels, set, method and seed."""

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        self.failed = [row for row in rows if row["failed"] is not None]
        self._rows: dict[tuple[float, str, str], dict[int, Row]] = {}
        for row in rows:
            if row["failed"] is None:
                key = float(row["noise"]), row["set"], row["method"]
                self._rows.setdefault(key, {})[row["seed"]] = row

    @property
    def noises(self) -> list[float]:
        """The fractions of wrong labels, lowest first."""
        return sorted({noise for noise, _, _ in self._rows})

    def sets(self, noise: float, *kinds: str) -> list[str]:
        """The sets with results, generated ones first; only those of some kinds, if given."""
        found = sorted({name for share, name, _ in self._rows if share == noise})
        order = [*generated_sets(), *(name for name in found if kind_of(name) == "table"), IMAGES]
        return [name for name in order if name in found and (not kinds or kind_of(name) in kinds)]

    def methods(self, noise: float, names: Sequence[str]) -> list[str]:
        """The methods with results on one of these sets."""
        return [m for m in LABELS if any((noise, name, m) in self._rows for name in names)]

    def values(self, score: str, noise: float, name: str, method: str) -> dict[int, float]:
        """A score by seed; empty if it was not measured."""
        rows = self._rows.get((noise, name, method), {})
        return {seed: float(row[score]) for seed, row in sorted(rows.items()) if score in row}

    def mean(self, score: str, noise: float, name: str, method: str) -> tuple[float, float]:
        """The mean over seeds and its standard error; NaN where there is none."""
        values = list(self.values(score, noise, name, method).values())
        return mean_and_error(values) if values else (np.nan, np.nan)

    def gap(self, score: str, noise: float, name: str, method: str, other: str) -> Gap | None:
        """The paired difference of two methods; None if they have no seed in common."""
        one, two = (self.values(score, noise, name, m) for m in (method, other))
        differences = [one[seed] - two[seed] for seed in sorted(one.keys() & two.keys())]
        return Gap(*mean_and_error(differences), len(differences)) if differences else None

    def share_closed(
        self, noise: float, names: Sequence[str], method: str, other: str = REFERENCE
    ) -> tuple[float, int]:
        """How much of another's distance to Bayes a method closes in log loss, on the mean of these sets.

        `sum (L_other - L_method) / sum (L_other - L_Bayes)` over the sets where all are known.

        Returns:
            The fraction and the number of those sets; NaN and 0 if there are none.
        """
        parts = [
            (gain.mean, distance.mean)
            for name in names
            if (gain := self.gap("log_loss", noise, name, other, method)) is not None
            and (distance := self.gap("log_loss", noise, name, other, ORACLE)) is not None
        ]
        closed, all_of_it = np.sum(parts, axis=0) if parts else (np.nan, np.nan)
        return float(closed / all_of_it), len(parts)


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over sets, the best being 1, and how far apart two must be to differ.

    Attributes:
        ranks: The mean rank of each method, best first.
        sets: The sets ranked on.
        left_out: Methods with results on too few sets.
        p_value: Of Friedman's test that all methods are alike; NaN for fewer than three methods.
        critical: Nemenyi's critical difference at level 0.05.
    """

    ranks: Mapping[str, float]
    sets: Sequence[str]
    left_out: Sequence[str]
    p_value: float
    critical: float

    def groups(self) -> list[tuple[str, ...]]:
        """The largest runs of at least two methods, next to each other in rank, that may all be alike."""
        names, places = list(self.ranks), list(self.ranks.values())
        runs: list[tuple[str, ...]] = []
        for first, place in enumerate(places):
            last = max(i for i, other in enumerate(places) if other - place <= self.critical)
            run = tuple(names[first : last + 1])
            if len(run) > 1 and not (runs and set(run) <= set(runs[-1])):
                runs.append(run)
        return runs


def ranking(board: Board, noise: float, score: str = "log_loss") -> Ranking:
    """Rank the methods on every set by their mean over the seeds that all of them have.

    A method with results on less than two thirds of the sets is left out; the sets are then those on which the
    others have a seed in common.

    Reference: Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006).
    """
    names = board.sets(noise)
    every = {
        method: {name: found for name in names if (found := board.values(score, noise, name, method))}
        for method in board.methods(noise, names)
        if method != ORACLE
    }
    methods = [m for m, found in every.items() if len(found) >= 2 / 3 * len(names)]
    common = {
        name: seeds
        for name in names
        if methods and (seeds := set.intersection(*(set(every[m].get(name, ())) for m in methods)))
    }
    table = np.array(
        [[np.mean([every[m][name][s] for s in seeds]) for m in methods] for name, seeds in common.items()]
    ).reshape(len(common), len(methods))
    places = ranks_of(table)
    order = np.argsort(places, kind="stable")
    return Ranking(
        {methods[i]: float(places[i]) for i in order} if common else {},
        list(common),
        [m for m in every if m not in methods],
        _friedman(table),
        critical_difference(len(methods), len(common)) if common and len(methods) > 1 else np.nan,
    )


def ranks_of(table: Float) -> Float:
    """Mean rank of each column, ties splitter theirs; the lowest value of a row has rank 1."""
    if table.size == 0:
        return np.full(table.shape[1], np.nan)
    places: Float = rankdata(table, axis=1).mean(axis=0)
    return places


def critical_difference(methods: int, sets: int, *, level: float = 0.05) -> float:
    """Nemenyi's: `q sqrt(k (k + 1) / (6 N))`, q the quantile of the studentised range divided by sqrt(2)."""
    quantile = studentized_range.ppf(1 - level, methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * sets)))


def _friedman(table: Float) -> float:
    if table.shape[1] < 3 or len(table) < 2:
        return float("nan")
    return float(friedmanchisquare(*table.T).pvalue)
