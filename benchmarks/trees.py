"""Predictions of decision trees as a module, 256 rows at a time, beside scikit-learn on all rows."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from torch import Tensor, nn

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal.models.trees import TreeColumns, Trees
from selfcal.tabular.features import FeatureGroups

NOTE = """\
Rows per second of processor time, with one thread. "Step by step" is the module without `Masks`, which forests
and large trees do not use in any case; the ratio is that of the module to scikit-learn."""
FIT_ROWS, ROWS, BLOCK = 3_000, 2_560, 256
N_COLUMNS, N_CATEGORIES, N_LEVELS = 30, 10, 20
N_NUMBERS = N_COLUMNS - N_CATEGORIES


def boosting(leaves: int, iterations: int, **options: object) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        max_iter=iterations,
        max_leaf_nodes=leaves,
        learning_rate=0.02,
        early_stopping=False,
        random_state=0,
        **options,
    )


def numbers(n: int) -> Tensor:
    return torch.randn(n, N_COLUMNS, generator=torch.Generator().manual_seed(n))


def missing(n: int) -> Tensor:
    """Every number has an indicator; one in ten is missing."""
    indicators = torch.rand(n, N_COLUMNS, generator=torch.Generator().manual_seed(n)) < 0.1
    return torch.cat([numbers(n), indicators], dim=1)


def categories(n: int) -> Tensor:
    codes = torch.randint(N_LEVELS, (n, N_CATEGORIES), generator=torch.Generator().manual_seed(n))
    one_hot = torch.nn.functional.one_hot(codes, N_LEVELS).flatten(1)
    return torch.cat([numbers(n)[:, :N_NUMBERS], one_hot], dim=1)


LAST = N_NUMBERS + N_LEVELS * N_CATEGORIES
PLAIN = TreeColumns(N_COLUMNS), numbers
MISSING = (
    TreeColumns(2 * N_COLUMNS, FeatureGroups(missing=[(i, N_COLUMNS + i) for i in range(N_COLUMNS)])),
    missing,
)
CATEGORIES = (
    TreeColumns(
        LAST, FeatureGroups(categories=[(i, i + N_LEVELS) for i in range(N_NUMBERS, LAST, N_LEVELS)])
    ),
    categories,
)
Case = tuple[ClassifierMixin, tuple[TreeColumns, Callable[[int], Tensor]], int]


def cases() -> dict[str, Case]:
    """Classifiers, their columns and the number of classes; 30 columns each."""
    found = {
        f"boosting, {trees:,} trees of {leaves} leaves": (boosting(leaves, trees), PLAIN, 2)
        for trees in (100, 500, 2_500)
        for leaves in (8, 15, 31)
    }
    return found | {
        "boosting, 3 classes, 1,500 trees of 15 leaves": (boosting(15, 500), PLAIN, 3),
        "boosting, 10 classes, 1,000 trees of 31 leaves": (boosting(31, 100), PLAIN, 10),
        "boosting, 500 trees of 15 leaves, missing values": (boosting(15, 500), MISSING, 2),
        "boosting, 500 trees of 15 leaves, 10 categories of 20 levels": (
            boosting(15, 500, categorical_features=CATEGORIES[0].categorical),
            CATEGORIES,
            2,
        ),
        "boosting, 100 trees of 100 leaves": (boosting(100, 100), PLAIN, 2),
        "extra trees, 100": (ExtraTreesClassifier(100, min_samples_leaf=2, random_state=0), PLAIN, 2),
        "extra trees, 100, 50 classes": (ExtraTreesClassifier(100, random_state=0), PLAIN, 50),
    }


def labels(rows: np.ndarray, n_classes: int) -> np.ndarray:
    """Depend on products of columns, so that trees are not trivial."""
    rng = np.random.default_rng(0)
    rows = np.nan_to_num(rows)
    score = np.tanh(rows) @ rng.normal(size=(rows.shape[1], n_classes))
    products = rows[:, np.arange(n_classes) % N_COLUMNS] * rows[:, -1 - np.arange(n_classes) % N_COLUMNS]
    return (score + products + rng.normal(size=score.shape)).argmax(axis=1)


def in_blocks(module: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        for block in x.split(BLOCK):
            module(block)


def main() -> None:
    options = parser(__doc__, repeats=9).parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    table = [
        "| trees | module, rows/s | step by step, rows/s | scikit-learn, rows/s | ratio of times |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(table))
    for name, (model, (columns, make), n_classes) in cases().items():
        fit_rows, x = columns(make(FIT_ROWS)).numpy(), make(ROWS)
        model.fit(fit_rows, labels(fit_rows, n_classes))
        raw = columns(x).double().numpy()
        module = Trees.of(model, columns, n_classes)
        by_steps = copy.deepcopy(module)
        by_steps.masks = None
        best = best_seconds(
            {
                "module": functools.partial(in_blocks, module, x),
                "step by step": functools.partial(in_blocks, by_steps, x),
                "scikit-learn": functools.partial(
                    getattr(model, "decision_function", model.predict_proba), raw
                ),
            },
            options.repeats,
            clock=time.process_time,
        )
        rates = {case: ROWS / seconds for case, seconds in best.items()}
        rows.append({"trees": name, **rates, "ratio": best["module"] / best["scikit-learn"]})
        table.append(
            f"| {name} | {' | '.join(f'{rate:,.0f}' for rate in rates.values())} | {rows[-1]['ratio']:.2f} |"
        )
        print(table[-1], flush=True)
    write_json(options.json, rows)
    title = f"Decision trees, {torch.backends.cpu.get_cpu_capability()}"
    write_section(options.results, title, "\n".join([NOTE, "", *table]))


if __name__ == "__main__":
    main()
