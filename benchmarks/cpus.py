"""How far models differ that were fitted with the kernels of different processors: ``make bench-cpus``.

``fit runs/cpus/AVX2.npz`` fits the methods with the kernels that the environment asks for and stores the predictions;
``compare runs/cpus`` prints the largest differences from `native.npz` over all data sets.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from selfcal import SelfCalibratedClassifier, metrics
from selfcal.datasets import Blobs, BloodAlcohol, Spirals

METHODS = ("standard", "temperature", "bo4sc", "gamma_net_sece", "crossfit", "auto")
DATA_SETS = (Blobs(std=1.7), Spirals(), BloodAlcohol())


def fit(path: Path, n: int = 1000, max_epochs: int = 60) -> None:
    """Fit every method on n rows of every data set and write its probabilities for n others."""
    predicted = {}
    for data in DATA_SETS:
        X, y = data.sample(n, seed=0)
        for method in METHODS:
            clf = SelfCalibratedClassifier(method, max_epochs=max_epochs, time_budget=1e9, random_state=0)
            predicted[f"{data.name}/{method}"] = clf.fit(X, y).predict_proba(data.sample(n, seed=1)[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **predicted)


def compare(folder: Path) -> list[str]:
    """A Markdown table: the largest differences in a probability and in the log loss, method by method."""
    others = sorted(path for path in folder.glob("*.npz") if path.stem != "native")
    native, *found = [np.load(path) for path in (folder / "native.npz", *others)]
    n = len(native[native.files[0]])
    labels = {data.name: data.sample(n, seed=1)[1] for data in DATA_SETS}
    lines = [
        "| method | " + " | ".join(f"{path.stem}: probability | log loss" for path in others) + " |",
        "|---|" + "---|---|" * len(others),
    ]
    for method in METHODS:
        cells = []
        for other in found:
            pairs = {name: (native[f"{name}/{method}"], other[f"{name}/{method}"]) for name in labels}
            probability = max(np.abs(a - b).max() for a, b in pairs.values())
            log_loss = max(
                abs(metrics.log_loss(labels[name], a) - metrics.log_loss(labels[name], b))
                for name, (a, b) in pairs.items()
            )
            cells += [f"{probability:.0e}", f"{log_loss:.0e}"]
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("task", choices=("fit", "compare"))
    options.add_argument("path", type=Path)
    chosen = options.parse_args()
    if chosen.task == "fit":
        fit(chosen.path)
    else:
        print("\n".join(compare(chosen.path)))


if __name__ == "__main__":
    main()
