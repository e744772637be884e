"""Every post-hoc calibrator on the logits of real networks: fitted on half of the rows, judged on the others.

Needs files with `logits` and `y`, one for each network; none of them comes with the project:

    python -m benchmarks.calibrators --data logits_*.npz --results benchmarks/RESULTS.md

With `--settings`, the log loss of several settings instead, by cross-validation within the first halves alone; with
`--rows`, the log loss after fits on few rows, which needs probmetrics.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks import _calibrators_by_rows
from benchmarks._timing import write_json, write_section
from selfcal import calibrators, metrics
from selfcal.errors import CalibrationWarning

BEFORE = "none (softmax)"
FOLDS = 4
SETTINGS = {
    "TemperatureScaling": [{}],
    "MatrixScaling": [{"safeguard": False}]
    + [{"l2": 1e-4, "odir": odir, "safeguard": False} for odir in (0.3, 0.5, 1.0, 2.0, 5.0, 10.0)],
    "PolynomialCalibration": [{"degree": degree, "safeguard": False} for degree in (3, 6, 10, 20)],
}


def judged(name: str, y: np.ndarray, probs: np.ndarray, seconds: float, note: str) -> dict[str, Any]:
    loss, error = (
        metrics.score_interval(y, probs, score="log_loss"),
        metrics.calibration_error_interval(y, probs),
    )
    return {
        "calibrator": name,
        "accuracy": metrics.accuracy(y, probs),
        "log_loss": [loss.value, loss.low, loss.high],
        "ece": [error.value, error.low, error.high],
        "classwise": metrics.classwise_calibration_error(y, probs),
        "smooth": metrics.smooth_calibration_error(y, probs),
        "seconds": seconds,
        "note": note,
    }


def loaded(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path, allow_pickle=False) as kept:
        return kept["logits"].astype(np.float64), kept["y"]


def cross_validated(path: Path) -> dict[str, float]:
    """The mean log loss of each setting over folds of the first half of the rows."""
    logits, y = loaded(path)
    half = len(y) // 2
    logits, y, fold = logits[:half], y[:half], np.arange(half) % FOLDS

    def loss(name: str, setting: dict[str, Any], k: int) -> float:
        calibrator = getattr(calibrators, name)(**setting).fit(logits[fold != k], y[fold != k])
        return metrics.log_loss(y[fold == k], calibrator.predict_proba(logits[fold == k]))

    return {
        f"{name}({', '.join(f'{key}={value}' for key, value in setting.items())})": float(
            np.mean([loss(name, setting, k) for k in range(FOLDS)])
        )
        for name, settings in SETTINGS.items()
        for setting in settings
    }


def settings_markdown(found: dict[str, dict[str, float]]) -> str:
    lines = [
        f"Log loss by {FOLDS}-fold cross-validation within the first half of each file.",
        "",
        f"| setting | {' | '.join(found)} |",
        f"|---|{'---|' * len(found)}",
    ]
    for setting in next(iter(found.values())):
        lines.append(f"| `{setting}` | {' | '.join(f'{losses[setting]:.4f}' for losses in found.values())} |")
    return "\n".join(lines)


def measure(path: Path) -> list[dict[str, Any]]:
    """The rows of one network."""
    logits, y = loaded(path)
    half = len(y) // 2
    rows = [judged(BEFORE, y[half:], softmax(logits[half:], axis=1), 0.0, "")]
    for name in calibrators.__all__:
        started = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            calibrator = getattr(calibrators, name)().fit(logits[:half], y[:half])
        seconds = time.perf_counter() - started
        note = (
            "rolled back"
            if getattr(calibrator, "is_identity_", False)
            else "; ".join({_short(w) for w in caught})
        )
        if hasattr(calibrator, "temperature_"):
            note = f"T = {calibrator.temperature_:.3f}"
        rows.append(judged(name, y[half:], calibrator.predict_proba(logits[half:]), seconds, note))
    return [{"network": network(path), **row} for row in rows]


def network(path: Path) -> str:
    return path.stem.removeprefix("logits_")


def _short(warning: warnings.WarningMessage) -> str:
    return str(warning.message).partition(":")[0]


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "Default settings, fitted on the first half of each file, evaluated on the second. In brackets 95% intervals",
        "of the mean log loss, and of the ECE (15 bins) in the limit of unlimited data.",
    ]
    for name in dict.fromkeys(row["network"] for row in rows):
        lines += [
            "",
            f"## {name}",
            "",
            "| calibrator | accuracy | log loss | ECE, % | classwise ECE, % | smECE, % | fit, s | |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            if row["network"] == name:
                loss, low, high = row["log_loss"]
                error = [100 * value for value in row["ece"]]
                lines.append(
                    f"| {row['calibrator']} | {row['accuracy']:.4f} | {loss:.4f} [{low:.4f}, {high:.4f}] | "
                    f"{error[0]:.2f} [{error[1]:.2f}, {error[2]:.2f}] | {100 * row['classwise']:.2f} | "
                    f"{100 * row['smooth']:.2f} | {row['seconds']:.2f} | {row['note']} |"
                )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files with `logits` and `y`")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--results", type=Path, help="also write the tables as Markdown")
    parser.add_argument("--settings", action="store_true", help="cross-validate settings in the first halves")
    parser.add_argument("--rows", action="store_true", help="fit on 50 to 5,000 rows, several draws of each")
    options = parser.parse_args()
    if options.rows:
        networks = {network(path): _calibrators_by_rows.by_rows(*loaded(path)) for path in options.data}
        print(_calibrators_by_rows.markdown(networks))
        write_json(
            options.json, [{"network": name, **row} for name, rows in networks.items() for row in rows]
        )
        write_section(options.results, "Calibrators by rows", _calibrators_by_rows.markdown(networks))
        return
    if options.settings:
        found = {network(path): cross_validated(path) for path in options.data}
        print(settings_markdown(found))
        write_json(options.json, [{"network": name, **losses} for name, losses in found.items()])
        write_section(options.results, "Settings of the calibrators", settings_markdown(found))
        return
    rows = [row for path in options.data for row in measure(path)]
    print(markdown(rows))
    write_json(options.json, rows)
    write_section(options.results, "Post-hoc calibrators", markdown(rows))


if __name__ == "__main__":
    main()
