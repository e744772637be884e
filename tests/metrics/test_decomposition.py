import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given

from selfcal.metrics import (
    Decomposition,
    brier_decomposition,
    brier_score,
    log_loss,
    log_loss_decomposition,
)

from .strategies import predictions, weights_for

SPLITS = [(brier_decomposition, brier_score), (log_loss_decomposition, log_loss)]
every_split = pytest.mark.parametrize(("split", "score"), SPLITS, ids=["brier", "log_loss"])


def calibrated(n, k, rng):
    p = rng.dirichlet(np.ones(k), size=n)
    return (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, k - 1), p


@every_split
@given(predictions())
def test_parts_add_up_to_the_score(split, score, data):
    y, p = data
    w = weights_for(len(y))
    parts = split(y, p, sample_weight=w)
    assert parts.total == pytest.approx(score(y, p, sample_weight=w), rel=1e-12, abs=1e-12)
    assert parts.total == pytest.approx(parts.calibration - parts.resolution + parts.uncertainty, abs=1e-12)
    assert parts.calibration >= 0
    assert parts.refinement >= 0


@given(predictions())
def test_brier_resolution_is_never_negative(data):
    assert brier_decomposition(*data).resolution >= -1e-12


@every_split
def test_uncertainty_is_the_score_of_the_shares_of_the_classes(split, score):
    y = np.array([0, 0, 0, 1, 1, 2])
    frequencies = np.tile([1 / 2, 1 / 3, 1 / 6], (6, 1))
    parts = split(y, frequencies)
    assert parts.uncertainty == pytest.approx(score(y, frequencies))
    assert parts.calibration == pytest.approx(0, abs=1e-12)
    assert parts.resolution == pytest.approx(0, abs=1e-12)
    other = np.random.default_rng(0).dirichlet(np.ones(3), size=6)
    assert split(y, other).uncertainty == pytest.approx(parts.uncertainty)


@every_split
def test_calibration_part_is_zero_for_a_calibrated_model_only(split, score):
    y, p = calibrated(20_000, 2, np.random.default_rng(1))
    sharpened = p**3 / (p**3).sum(axis=1, keepdims=True)
    fair, bold = split(y, p), split(y, sharpened)
    assert fair.calibration < 0.01
    assert bold.calibration > 10 * fair.calibration
    assert bold.refinement == pytest.approx(fair.refinement, rel=0.05)


@given(predictions())
def test_only_the_order_of_the_scores_counts_for_brier_refinement(data):
    """A monotone distortion of P(y=1) can be undone: refinement stays, and the loss is in calibration."""
    y, p = data
    y, p1 = y % 2, p[:, 0]
    distorted = p1**3
    before = brier_decomposition(y, np.column_stack([1 - p1, p1]))
    after = brier_decomposition(y, np.column_stack([1 - distorted, distorted]))
    distinct = {len(np.unique(scores)) for scores in (p1, 1 - p1, distorted, 1 - distorted)}
    if len(distinct) == 1:  # rounding merged no scores
        assert after.refinement == pytest.approx(before.refinement, abs=1e-12)


def test_brier_by_hand():
    """P(y=1) of .1 .3 .3 .8 with labels 0 0 1 1: isotonic 0 .5 .5 1; both columns alike."""
    parts = brier_decomposition([0, 0, 1, 1], [[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.2, 0.8]])
    assert parts.refinement == pytest.approx(2 * (0.25 + 0.25) / 4)
    assert parts.calibration == pytest.approx(2 * (0.1**2 + 2 * 0.2**2 + 0.2**2) / 4)
    assert parts.uncertainty == pytest.approx(2 * 0.25)


def test_log_loss_by_hand():
    """Confidences .6 .8 .8 .9 right 1 0 1 1: isotonic 2/3 for the first three, 1 for the last."""
    parts = log_loss_decomposition([1, 1, 1, 0], [[0.4, 0.6], [0.8, 0.2], [0.2, 0.8], [0.9, 0.1]])
    assert parts.refinement == pytest.approx(-(2 * math.log(2 / 3) + math.log(1 / 3)) / 4)
    assert parts.total == pytest.approx(-math.log(0.6 * 0.2 * 0.8 * 0.9) / 4)


def test_the_loss_among_the_other_classes_is_refinement():
    """Always wrong at .5, which recalibration turns into certainty of being wrong; .4 to .1 stays."""
    parts = log_loss_decomposition([1, 2], [[0.5, 0.4, 0.1], [0.5, 0.4, 0.1]])
    assert parts.calibration == pytest.approx(math.log(2))
    assert parts.refinement == pytest.approx(-(math.log(0.8) + math.log(0.2)) / 2)
    assert parts.resolution == pytest.approx(math.log(2) - parts.refinement)
    assert parts.resolution < 0


@every_split
def test_equal_probabilities_are_recalibrated_alike(split, score):
    """Nothing can tell these rows apart, whatever their order."""
    y, p = np.array([0, 1, 0, 1]), np.full((4, 2), 0.5)
    assert split(y, p).resolution == pytest.approx(0, abs=1e-12)
    assert split(y[::-1], p) == split(y, p)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Decomposition(0.1, 0.2, 0.3).calibration = 0.0
