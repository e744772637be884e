"""How the calibrators do with few rows, beside temperature scaling and the structured matrix of probmetrics."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import softmax

from selfcal import calibrators
from selfcal.calibrators import TemperatureScaling

SIZES = (50, 200, 500, 2000, 5000)
DRAWS = 10
REFERENCE = "`sms` of probmetrics"
PLAIN = "without safeguard"
ROUNDING = 1e-9
"""Temperature scaling in two ways differs by less; of a single draw that differs, the mean is its standard error."""

Fit = Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]
"""From logits and labels to a map from logits to probabilities."""


def ours(make: type, **settings: Any) -> Fit:
    return lambda z, y: make(**settings).fit(z, y).predict_proba


def sms(z: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from probmetrics.calibrators import get_calibrator

    calibrator = get_calibrator("sms")
    calibrator.fit(softmax(z, axis=1), y.astype(np.int64))
    return lambda new: calibrator.predict_proba(softmax(new, axis=1))


def competitors() -> dict[str, Fit]:
    found: dict[str, Fit] = {}
    for make in calibrators.POST_HOC.values():
        if make is not TemperatureScaling:
            found[f"`{make.__name__}`"] = ours(make)
            if "safeguard" in make().get_params():
                found[f"`{make.__name__}`, {PLAIN}"] = ours(make, safeguard=False)
    return found | {REFERENCE: sms}


def by_rows(logits: np.ndarray, y: np.ndarray, draws: int = DRAWS) -> list[dict[str, Any]]:
    """The log loss on the second half of the rows, after fits on rows drawn from the first half.

    The largest size is the whole half: there is one draw, and the standard error is that over the judged rows.
    """
    half = len(y) // 2
    rows: list[dict[str, Any]] = []
    for size in (size for size in SIZES if size <= half):
        for draw in range(draws if size < half else 1):
            drawn = np.random.default_rng([size, draw]).choice(half, size, replace=False)
            rows += judged(logits[drawn], y[drawn], logits[half:], y[half:], {"rows": size, "draw": draw})
    return rows


def judged(
    z: np.ndarray, y: np.ndarray, new: np.ndarray, new_y: np.ndarray, about: dict[str, Any]
) -> list[dict[str, Any]]:
    """The log loss of each calibrator on new rows, and its differences to temperature scaling and to `sms`."""

    def losses(fit: Fit) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probs = fit(z, y)(new)[np.arange(len(new_y)), new_y].astype(np.float64)
        return -np.log(np.maximum(probs, np.finfo(np.float64).tiny))

    base = losses(ours(TemperatureScaling))
    found = {name: losses(fit) for name, fit in competitors().items()}
    rows = [{**about, "calibrator": "`TemperatureScaling`", "log_loss": float(base.mean())}]
    for name, loss in found.items():
        differences = {"to_base": paired(loss - base), "to_sms": paired(loss - found[REFERENCE])}
        rows.append({**about, "calibrator": name, "log_loss": float(loss.mean()), **differences})
    return rows


def paired(difference: np.ndarray) -> list[float]:
    """The mean and its standard error over rows."""
    return [float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))]


def over_draws(rows: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """The mean difference and its standard error: over draws, or of the only draw over its judged rows."""
    means, errors = np.array([row[key] for row in rows]).T
    return float(means.mean()), float(
        means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else errors[0]
    )


def markdown(networks: dict[str, list[dict[str, Any]]]) -> str:
    sizes = sorted({row["rows"] for rows in networks.values() for row in rows})
    head = [f"| calibrator | {' | '.join(f'{size:,}' for size in sizes)} |", f"|---|{'---|' * len(sizes)}"]
    lines = [
        "Log loss on the second half of each file less that of temperature scaling, in thousandths, after a fit on",
        f"rows drawn from the first half: mean and standard error over {DRAWS} draws. For all rows of the half,",
        "there is one fit, and the standard error is that over the rows it is evaluated on. Bold: more than one",
        "standard error above temperature scaling.",
    ]
    for network, rows in networks.items():
        lines += ["", f"## {network}, by the number of rows", "", *head]
        base = (_mean([r["log_loss"] for r in _of(rows, "`TemperatureScaling`", n)]) for n in sizes)
        lines.append(f"| `TemperatureScaling`, log loss | {' | '.join(f'{loss:.4f}' for loss in base)} |")
        for name in dict.fromkeys(row["calibrator"] for row in rows if "to_base" in row):
            lines.append(f"| {name} | {' | '.join(_cell(_of(rows, name, n), 'to_base') for n in sizes)} |")
        against = (_cell(_of(rows, "`StructuredMatrixScaling`", n), "to_sms") for n in sizes)
        lines.append(f"| `StructuredMatrixScaling` less {REFERENCE} | {' | '.join(against)} |")
    return "\n".join(lines)


def _of(rows: list[dict[str, Any]], name: str, size: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["calibrator"] == name and row["rows"] == size]


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _cell(rows: list[dict[str, Any]], key: str) -> str:
    mean, error = over_draws(rows, key)
    text = f"{1e3 * mean:+.1f} ± {1e3 * error:.1f}"
    return f"**{text}**" if mean > error + ROUNDING else text
