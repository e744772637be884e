"""What `benchmarks.metrics` times: the data, the plain way in NumPy or SciPy, our functions, and the peers."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from selfcal import calibrators, metrics

N_BINS = 15
BATCH = 10_000
OURS = "selfcal"
MODULES = {
    "torchmetrics": "torchmetrics",
    "netcal": "netcal",
    "relplot": "relplot",
    "uncertainty-calibration": "calibration",
}
"""Peers that may be missing, and the module by which each is known."""

Case = Callable[[], object]


class Data(NamedTuple):
    """Labels, and the probabilities or logits of each class."""

    y: np.ndarray
    values: np.ndarray


def is_installed(case: str) -> bool:
    return case not in MODULES or find_spec(MODULES[case]) is not None


def missing() -> list[str]:
    return [case for case in MODULES if not is_installed(case)]


def predictions(n: int, k: int) -> Data:
    """Float32 probabilities of a model that is too sure; made in blocks, so as to need little beyond the result."""
    rng = np.random.default_rng(0)
    y, probs = np.empty(n, dtype=np.int64), np.empty((n, k), dtype=np.float32)
    for start in range(0, n, 100_000):
        block = rng.standard_exponential((min(100_000, n - start), k), dtype=np.float32) ** 3
        block /= block.sum(axis=1, keepdims=True)
        u = rng.random((len(block), 1), dtype=np.float32)
        probs[start : start + len(block)] = block
        y[start : start + len(block)] = (
            ((0.8 * block + 0.2 / k).cumsum(axis=1) < u).sum(axis=1).clip(0, k - 1)
        )
    return Data(y, probs)


def confidences(n: int, k: int) -> Data:
    y, probs = predictions(n, k)
    return Data(y, probs.astype(np.float64))


def logits(n: int, k: int) -> Data:
    """Logits 1.8 times too large."""
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, size=(n, k))
    return Data((z + rng.gumbel(size=z.shape)).argmax(axis=1), 1.8 * z)


def numpy_top_label(data: Data) -> Case:
    def run() -> float:
        chosen = data.values.argmax(axis=1)
        top = np.take_along_axis(data.values, chosen[:, None], axis=1)[:, 0]
        return binned_gap(top, chosen == data.y)

    return run


def numpy_classwise(data: Data) -> Case:
    def run() -> float:
        k = data.values.shape[1]
        return sum(binned_gap(data.values[:, c], data.y == c) for c in range(k)) / k

    return run


def binned_gap(confidence: np.ndarray, correct: np.ndarray) -> float:
    index = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
    sums = (np.bincount(index, weights=v, minlength=N_BINS) for v in (confidence, correct))
    return float(np.abs(np.subtract(*sums)).sum() / len(confidence))


def torchmetrics_top_label(data: Data) -> Case:
    from torchmetrics.functional.classification import multiclass_calibration_error

    y, probs = torch.from_numpy(data.y), torch.from_numpy(data.values)
    return lambda: multiclass_calibration_error(probs, y, num_classes=probs.shape[1], n_bins=N_BINS).item()


def netcal_top_label(data: Data) -> Case:
    from netcal.metrics import ECE

    return lambda: float(ECE(N_BINS).measure(data.values, data.y))


def relplot_top_label(data: Data) -> Case:
    from relplot.metrics import binnedECE, multiclass_logits_to_confidences

    return lambda: binnedECE(*multiclass_logits_to_confidences(data.values, data.y, probs=True), nbins=N_BINS)


def uncertainty_calibration(mode: str) -> Callable[[Data], Case]:
    def build(data: Data) -> Case:
        from calibration import get_ece

        return lambda: get_ece(data.values, data.y, num_bins=N_BINS, mode=mode)

    return build


def scipy_temperature(data: Data) -> Case:
    rows = np.arange(len(data.y))

    def loss(log_beta: float) -> float:
        z = np.exp(log_beta) * data.values
        top = z.max(axis=1)
        return float(np.mean(np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - z[rows, data.y]))

    return lambda: float(np.exp(-minimize_scalar(loss, bounds=(-5, 5)).x))


def scikit_learn_temperature(data: Data) -> Case:
    from sklearn.calibration import _TemperatureScaling  # what CalibratedClassifierCV fits, without its folds

    return lambda: float(1 / _TemperatureScaling().fit(data.values, data.y).beta_)


def netcal_temperature(data: Data) -> Case:
    from netcal.scaling import TemperatureScaling
    from scipy.special import softmax

    probs = softmax(data.values, axis=1)
    return lambda: float(1 / TemperatureScaling().fit(probs, data.y).temperature[0])


def relplot_smooth(data: Data) -> Case:
    from relplot.metrics import multiclass_logits_to_confidences, smECE

    return lambda: smECE(*multiclass_logits_to_confidences(data.values, data.y, probs=True))


def ours(metric: Callable[..., float], **settings: Any) -> Callable[[Data], Case]:
    return lambda data: lambda: metric(data.y, data.values, **settings)


def our_temperature(data: Data) -> Case:
    return lambda: calibrators.TemperatureScaling().fit(data.values, data.y).temperature_


def accumulator(scores: bool) -> Callable[[Data], Case]:
    def build(data: Data) -> Case:
        def run() -> float:
            stream = metrics.CalibrationAccumulator(data.values.shape[1], n_bins=N_BINS, scores=scores)
            for start in range(0, len(data.y), BATCH):
                stream.update(data.y[start : start + BATCH], data.values[start : start + BATCH])
            return stream.compute().ece

        return run

    return build


def three_batch_calls(data: Data) -> Case:
    def run() -> float:
        metrics.log_loss(data.y, data.values)
        metrics.brier_score(data.y, data.values)
        return metrics.expected_calibration_error(data.y, data.values, n_bins=N_BINS)

    return run


TOP_LABEL = {
    "bare numpy": numpy_top_label,
    OURS: ours(metrics.expected_calibration_error, n_bins=N_BINS),
    "torchmetrics": torchmetrics_top_label,
    "netcal": netcal_top_label,
    "relplot": relplot_top_label,
    "uncertainty-calibration": uncertainty_calibration("top-label"),
}
CLASSWISE = {
    "numpy loop over classes": numpy_classwise,
    OURS: ours(metrics.classwise_calibration_error, n_bins=N_BINS),
    "uncertainty-calibration": uncertainty_calibration("marginal"),
}
TEMPERATURE = {
    "scipy.minimize_scalar": scipy_temperature,
    OURS: our_temperature,
    "scikit-learn": scikit_learn_temperature,
    "netcal": netcal_temperature,
}
SMOOTH = {"relplot": relplot_smooth, OURS: ours(metrics.smooth_calibration_error)}
SECE = {OURS: ours(metrics.sece)}
MMCE = {OURS: ours(metrics.mmce)}
STREAMING = {
    "one batch call": ours(metrics.expected_calibration_error, n_bins=N_BINS),
    OURS: accumulator(scores=False),
    "ECE, log loss and Brier score, batch": three_batch_calls,
    "selfcal, with log loss and Brier score": accumulator(scores=True),
}
