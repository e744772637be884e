"""How well a batch can tell that a network is over-confident, by objective.

For networks known to be over-confident (their best temperature is above 1.3), the slope of each objective in the log
temperature should be negative. On one batch it is that signal and the noise of the batch; shown is the mean of the
slope over the batches, divided by its standard deviation over them. Below -1, nearly every step goes the right way;
near 0, the outer level wanders.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks._timing import parser, write_json, write_section
from selfcal import Batch, Output
from selfcal.objectives import DECE, MMCE, NLL, SECE, ConfidenceBCE
from selfcal.training.interfaces import Objective

OBJECTIVES: dict[str, Objective] = {
    "SECE, bandwidth .01": SECE(bandwidth=0.01),
    "SECE, bandwidth .05": SECE(bandwidth=0.05),
    "SECE, bandwidth .1": SECE(bandwidth=0.1),
    "SECE, bandwidth .2": SECE(bandwidth=0.2),
    "DECE, 15 bins": DECE(),
    "MMCE": MMCE(),
    "ConfidenceBCE": ConfidenceBCE(),
    "NLL": NLL(),
}
SIZES = (128, 512)


def slopes(objective: Objective, logits: torch.Tensor, y: torch.Tensor, size: int) -> np.ndarray:
    """The slope in the log temperature on each batch of that size."""
    found = []
    for z, labels in zip(logits.split(size), y.split(size), strict=True):
        warmer = torch.zeros((), dtype=z.dtype, requires_grad=True)
        value = objective(Output(z * torch.exp(-warmer)), Batch(z, labels))
        found.append(float(torch.autograd.grad(value, warmer)[0]))
    return np.array(found[: len(y) // size])


def main() -> None:
    arguments = parser(__doc__, repeats=1)
    arguments.add_argument("--data", type=Path, nargs="+", required=True, help="logits_*.npz")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    rows, names = [], [path.stem.removeprefix("logits_") for path in options.data]
    for path, name in zip(options.data, names, strict=True):
        with np.load(path, allow_pickle=False) as file:
            logits, y = torch.from_numpy(file["logits"]).double(), torch.from_numpy(file["y"]).long()
        for label, objective in OBJECTIVES.items():
            for size in SIZES:
                slope = slopes(objective, logits, y, size)
                signal = float(slope.mean() / slope.std(ddof=1))
                rows.append({"network": name, "objective": label, "batch": size, "signal": signal})
    heads = [f"{name}, {size} rows" for size in SIZES for name in names]
    table = ["| objective | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for label in OBJECTIVES:
        by_column = {(r["network"], r["batch"]): r["signal"] for r in rows if r["objective"] == label}
        cells = [f"{by_column[name, size]:.2f}" for size in SIZES for name in names]
        table.append(f"| {label} | " + " | ".join(cells) + " |")
    print("\n".join(table))
    write_json(options.json, rows)
    write_section(options.results, "Signal to noise of outer objectives", "\n".join(table))


if __name__ == "__main__":
    main()
