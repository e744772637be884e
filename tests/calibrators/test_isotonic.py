import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from selfcal import metrics
from selfcal.calibrators import IsotonicCalibration
from selfcal.calibrators._one_vs_rest import log_odds


def binary(scores):
    return np.column_stack([np.zeros(len(scores)), scores])


def noisy(n=600, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, n_classes))
    return logits, (logits + 3 * rng.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn_between_the_end_blocks(weighted):
    logits, y = noisy(n_classes=2)
    weight = np.random.default_rng(1).integers(0, 4, len(y)) if weighted else None
    score = logits[:, 1] - logits[:, 0]
    expected = IsotonicRegression(out_of_bounds="clip").fit(score, y, sample_weight=weight).predict(score)
    got = IsotonicCalibration(safeguard=False).fit(logits, y, weight).predict_proba(logits)[:, 1]
    inside = (expected > 0) & (expected < 1)
    if weighted:
        inside &= weight > 0  # between blocks the line leads to the end block
    assert inside.sum() > 400
    np.testing.assert_allclose(got[inside], expected[inside], rtol=1e-12)


def test_end_blocks_are_pulled_in_by_one_shared_row():
    logits = binary([-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
    got = IsotonicCalibration(safeguard=False).fit(logits, [0, 0, 0, 1, 0, 1, 1]).predict_proba(logits)[:, 1]
    np.testing.assert_allclose(got, [0.5 / 4] * 3 + [0.5] * 2 + [2.5 / 3] * 2)


def test_end_block_never_passes_its_neighbour():
    logits = binary([-2.0] + [0.0] * 10)
    got = (
        IsotonicCalibration(safeguard=False)
        .fit(logits, [0, 1] + [0] * 9)
        .predict_proba(binary([-2.0, 0.0]))[:, 1]
    )
    np.testing.assert_allclose(got, [0.1, 0.1])  # not 0.5 / 2, which is above the next block


def test_class_absent_from_the_labels_stays_possible():
    logits, _ = noisy(40)
    probs = IsotonicCalibration(safeguard=False).fit(logits, np.arange(40) % 2).predict_proba(logits)
    assert 0 < probs[:, 2].max() < 0.02
    np.testing.assert_allclose(
        IsotonicCalibration(safeguard=False).fit(logits[:, :2], [0] * 40).predict_proba(logits[:, :2])[:, 1],
        0.5 / 41,
    )


def test_rows_are_normalised_one_vs_rest_curves():
    logits, y = noisy()
    calibrator = IsotonicCalibration(safeguard=False).fit(logits, y)
    odds = log_odds(logits)
    values = np.column_stack([curve(odds[:, c]) for c, curve in enumerate(calibrator.curves_)])
    np.testing.assert_allclose(
        calibrator.predict_proba(logits), values / values.sum(axis=1, keepdims=True), rtol=1e-12
    )
    for curve in calibrator.curves_:
        assert (np.diff(curve.y) >= 0).all()


def test_log_loss_of_new_rows_is_finite_and_lower():
    (logits, y), (new, new_y) = noisy(4000), noisy(4000, seed=1)
    calibrated = metrics.log_loss(
        new_y, IsotonicCalibration(safeguard=False).fit(3 * logits, y).predict_proba(3 * new)
    )
    assert (
        calibrated
        < metrics.log_loss(new_y, np.exp(3 * new) / np.exp(3 * new).sum(axis=1, keepdims=True)) - 0.5
    )
    assert calibrated < np.log(3)
