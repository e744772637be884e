"""Every post-hoc calibrator on the logits of real networks: fitted on half of the rows, judged on the others.

Needs files with `logits` and `y`, one for each network; none of them comes with the project:

    python -m benchmarks.calibrators --data logits_*.npz --results benchmarks/RESULTS.md
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks._timing import write_json, write_section
from selfcal import calibrators, metrics
from selfcal.errors import CalibrationWarning

BEFORE = "none (softmax)"


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


def measure(path: Path) -> list[dict[str, Any]]:
    """The rows of one network."""
    with np.load(path, allow_pickle=False) as kept:
        logits, y = kept["logits"].astype(np.float64), kept["y"]
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
    return [{"network": path.stem.removeprefix("logits_"), **row} for row in rows]


def _short(warning: warnings.WarningMessage) -> str:
    return str(warning.message).partition(":")[0]


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "Default settings, fitted on the first half of each file, judged on the second. In brackets 95 % intervals",
        "of the mean log loss, and of the ECE (15 bins) that endless data would show.",
    ]
    for network in dict.fromkeys(row["network"] for row in rows):
        lines += [
            "",
            f"### {network}",
            "",
            "| calibrator | accuracy | log loss | ECE, % | classwise ECE, % | smECE, % | fit, s | |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            if row["network"] == network:
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
    options = parser.parse_args()
    rows = [row for path in options.data for row in measure(path)]
    print(markdown(rows))
    write_json(options.json, rows)
    write_section(options.results, "Post-hoc calibrators", markdown(rows))


if __name__ == "__main__":
    main()
