"""Our metrics against scikit-learn and torchmetrics, on data where the definitions agree."""

import numpy as np
import pytest

from selfcal import metrics


@pytest.fixture(params=[(500, 2), (500, 5), (300, 40)], ids=str)
def data(request):
    n, k = request.param
    rng = np.random.default_rng(n + k)
    probs = rng.dirichlet(np.full(k, 0.4), size=n)
    y = (rng.random((n, 1)) > (0.7 * probs + 0.3 / k).cumsum(axis=1)).sum(axis=1).clip(0, k - 1)
    return y, probs, rng.random(n)


def test_log_loss_equals_scikit_learn(data):
    from sklearn.metrics import log_loss

    y, probs, weight = data
    expected = log_loss(y, probs, labels=np.arange(probs.shape[1]), sample_weight=weight)
    assert metrics.log_loss(y, probs, sample_weight=weight) == pytest.approx(expected, abs=1e-9)


def test_brier_score_equals_scikit_learn(data):
    from sklearn.metrics import brier_score_loss

    y, probs, weight = data
    labels = np.arange(probs.shape[1])
    expected = brier_score_loss(y, probs, labels=labels, sample_weight=weight, scale_by_half=False)
    assert metrics.brier_score(y, probs, sample_weight=weight) == pytest.approx(expected, abs=1e-9)


def test_accuracy_equals_scikit_learn(data):
    from sklearn.metrics import accuracy_score

    y, probs, weight = data
    expected = accuracy_score(y, probs.argmax(axis=1), sample_weight=weight)
    assert metrics.accuracy(y, probs, sample_weight=weight) == pytest.approx(expected, abs=1e-9)


def torchmetrics_ece(y, probs, n_bins, norm="l1"):
    """The binning core of torchmetrics in float64; its public function rounds to float32 first."""
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("torchmetrics.functional.classification.calibration_error")
    confidence, correct = torch.from_numpy(probs.max(axis=1)), torch.from_numpy(probs.argmax(axis=1) == y)
    return module._ce_compute(confidence, correct.double(), n_bins, norm=norm).item()


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("n_bins", [5, 15, 100])
def test_calibration_error_equals_torchmetrics(data, n_bins, norm):
    y, probs, _ = data
    value = metrics.expected_calibration_error(y, probs, n_bins=n_bins, norm=norm)
    assert value == pytest.approx(torchmetrics_ece(y, probs, n_bins, norm), abs=1e-9)


def test_calibration_error_equals_public_torchmetrics_up_to_float32(data):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    y, probs, _ = data
    theirs = functional.multiclass_calibration_error(
        torch.from_numpy(probs), torch.from_numpy(y), num_classes=probs.shape[1]
    )
    assert metrics.expected_calibration_error(y, probs) == pytest.approx(theirs.item(), abs=1e-6)


def test_torchmetrics_holds_the_left_edge_and_we_the_right_one():
    rng = np.random.default_rng(0)
    top = np.concatenate([rng.integers(4, 8, 300) / 8, rng.uniform(0.5, 1, 100)])
    probs = np.column_stack([top, 1 - top])
    y = (rng.random(400) > 0.75).astype(int)
    theirs = torchmetrics_ece(y, probs, n_bins=8)
    assert metrics.expected_calibration_error(y, probs, n_bins=8, closed="left") == pytest.approx(
        theirs, abs=1e-9
    )
    assert abs(metrics.expected_calibration_error(y, probs, n_bins=8) - theirs) > 0.001


def test_torchmetrics_gives_confidence_one_a_bin_of_its_own_and_we_do_not():
    rng = np.random.default_rng(0)
    top = np.where(rng.random(400) < 0.5, 1.0, rng.uniform(0.9, 1.0, 400))
    probs = np.column_stack([top, 1 - top])
    y = (rng.random(400) > np.where(top == 1, 0.9, 1.0)).astype(int)  # too sure at 1, not sure enough below
    ours = metrics.expected_calibration_error(y, probs, n_bins=10)
    assert ours == pytest.approx(abs(np.mean((y == 0) - top)), abs=1e-12)
    assert torchmetrics_ece(y, probs, n_bins=10) > ours + 0.02
