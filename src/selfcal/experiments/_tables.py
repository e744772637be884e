"""Rows of results as tables: mean and standard error over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from selfcal._support.parallel import Row

COLUMNS = {
    "accuracy": "Accuracy, 1,000 test rows",
    "ece": "ECE, 1,000 test rows (the paper's protocol, 15 bins)",
    "ece_100k": "ECE, 100,000 fresh test rows",
    "calibration_error": "Noise-free calibration error against the known posterior",
    "log_loss_100k": "Log loss, 100,000 fresh test rows",
    "accuracy_100k": "Accuracy, 100,000 fresh test rows",
}


IMAGE_COLUMNS = {
    "error": "Error %",
    "nll": "NLL",
    "ece": "ECE %",
    "mce": "MCE %",
    "ace": "ACE %",
    "cw_ece": "Classwise ECE %",
    "noise_floor": "ECE if calibrated %",
}


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error; the error of a single value is NaN."""
    v = np.asarray(values, dtype=np.float64)
    return float(v.mean()), float(v.std(ddof=1) / np.sqrt(len(v))) if len(v) > 1 else float("nan")


def summary_table(rows: Sequence[Row], methods: Mapping[str, str]) -> str:
    """Markdown: one table a metric, methods down, data sets across, mean ± standard error."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    n_seeds = len({row["seed"] for row in rows})
    lines = [f"Mean ± standard error over {n_seeds} seed{'s' * (n_seeds != 1)}."]
    for column, title in COLUMNS.items():
        lines += ["", f"**{title}**", "", "| method | " + " | ".join(datasets) + " |"]
        lines.append("|---" * (1 + len(datasets)) + "|")
        for method, label in methods.items():
            cells = []
            for dataset in datasets:
                values = [r[column] for r in rows if r["method"] == method and r["dataset"] == dataset]
                mean, error = mean_and_error(values)
                cells.append(f"{mean:.4f}" + (f" ± {error:.4f}" if np.isfinite(error) else ""))
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def image_tables(rows: Sequence[Row], methods: Mapping[str, str]) -> str:
    """Markdown: one table a data set and network, methods down, metrics across, mean ± standard deviation."""
    n_seeds = len({row["seed"] for row in rows})
    lines = [
        f"Mean ± standard deviation over {n_seeds} seed{'s' * (n_seeds != 1)}, all test images, 15 bins."
    ]
    for dataset, network in dict.fromkeys((row["dataset"], row["network"]) for row in rows):
        lines += [
            "",
            f"**{network} on {dataset}**",
            "",
            "| method | " + " | ".join(IMAGE_COLUMNS.values()) + " |",
        ]
        lines.append("|---" * (1 + len(IMAGE_COLUMNS)) + "|")
        of_network = [row for row in rows if (row["dataset"], row["network"]) == (dataset, network)]
        for method, label in methods.items():
            chosen = [row for row in of_network if row["method"] == method]
            if chosen:
                cells = [_spread([row[column] for row in chosen], column) for column in IMAGE_COLUMNS]
                fewer = "" if len(chosen) == n_seeds else f", {len(chosen)} of the seeds"
                lines.append(f"| {label}{fewer} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _spread(values: Sequence[float], column: str) -> str:
    digits = 3 if column == "nll" else 2
    shown = f"{np.mean(values):.{digits}f}"
    return shown if len(values) == 1 else f"{shown} ± {np.std(values, ddof=1):.{digits}f}"
