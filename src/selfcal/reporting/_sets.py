"""Prediction sets of the predictions of a report: chosen on one half of the rows, measured on the other."""

from __future__ import annotations

import numpy as np

from selfcal._support.splits import stratified_split
from selfcal.conformal.evaluation import evaluate_sets
from selfcal.conformal.guarantee import rank_for_coverage
from selfcal.conformal.scores import LAC
from selfcal.reporting._classes import estimate
from selfcal.reporting.content import PredictionSets
from selfcal.reporting.predictions import Predictions

COVERAGES = (0.8, 0.9, 0.95, 0.99)


def prediction_sets(judged: Predictions, *, level: float, seed: int) -> tuple[PredictionSets, ...]:
    """The coverage and the sizes of sets by LAC, for each coverage that half of the rows are enough for.

    A model stores sets that are chosen on all held-out rows; they are not chosen and measured on the same rows here,
    where the coverage would be met by construction.
    """
    one, other = stratified_split(judged.y, (0.5, 0.5), seed)
    if not len(other):
        return ()
    scores = LAC()(judged.probs, np.ones(len(judged.y)))
    known = np.sort(scores[one, judged.y[one]])
    found = []
    for promised in COVERAGES:
        rank = rank_for_coverage(promised, len(one))
        if rank > len(one):
            continue
        measured = evaluate_sets(judged.y[other], scores[other] <= known[rank - 1], level=level)
        found.append(
            PredictionSets(
                promised=promised,
                chosen_on=len(one),
                rows=len(other),
                coverage=estimate(measured.coverage),
                size=estimate(measured.size),
                single=measured.single,
                empty=measured.empty,
            )
        )
    return tuple(found)
