"""Predictions of decision trees as a module, 256 rows at a time, beside scikit-learn on all rows; one thread."""

from __future__ import annotations

import functools

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from torch import Tensor, nn

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal.models.trees import TreeColumns, Trees
from selfcal.tabular.features import FeatureGroups

FIT_ROWS, ROWS, BLOCK = 1_200, 5_120, 256
N_NUMBERS, N_CATEGORIES, N_LEVELS = 30, 10, 20


def boosting(leaves: int, **options: object) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        max_iter=100, max_leaf_nodes=leaves, early_stopping=False, random_state=0, **options
    )


def numbers(n: int) -> Tensor:
    return torch.randn(n, N_NUMBERS, generator=torch.Generator().manual_seed(n))


def categories(n: int) -> Tensor:
    codes = torch.randint(N_LEVELS, (n, N_CATEGORIES), generator=torch.Generator().manual_seed(n))
    one_hot = torch.nn.functional.one_hot(codes, N_LEVELS).flatten(1)
    return torch.cat([numbers(n)[:, :N_CATEGORIES], one_hot], dim=1)


def labels(rows: np.ndarray, n_classes: int) -> np.ndarray:
    """Depend on products of columns, so that trees are not trivial."""
    rng = np.random.default_rng(0)
    score = np.tanh(rows) @ rng.normal(size=(rows.shape[1], n_classes))
    return (score + rows[:, :n_classes] * rows[:, -n_classes:] + rng.normal(size=score.shape)).argmax(axis=1)


def in_blocks(module: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        for block in x.split(BLOCK):
            module(block)


def main() -> None:
    options = parser(__doc__, repeats=5).parse_args()
    torch.set_num_threads(1)
    plain = TreeColumns(N_NUMBERS)
    last = N_CATEGORIES + N_LEVELS * N_CATEGORIES
    blocks = tuple((start, start + N_LEVELS) for start in range(N_CATEGORIES, last, N_LEVELS))
    encoded = TreeColumns(last, FeatureGroups(categories=blocks))
    cases = {
        "boosting, 100 trees of 31 leaves": (boosting(31), plain, 2),
        "boosting, 100 trees of 8 leaves": (boosting(8), plain, 2),
        "boosting, 10 classes, 1,000 trees of 31 leaves": (boosting(31), plain, 10),
        "boosting, 10 categories of 20 levels": (
            boosting(31, categorical_features=encoded.categorical),
            encoded,
            2,
        ),
        "extra trees, 100": (ExtraTreesClassifier(100, min_samples_leaf=2, random_state=0), plain, 2),
    }
    rows: list[dict[str, object]] = []
    for name, (model, columns, n_classes) in cases.items():
        make = numbers if columns is plain else categories
        fit_rows, x = columns(make(FIT_ROWS)).numpy(), make(ROWS)
        model.fit(fit_rows, labels(fit_rows, n_classes))
        raw = columns(x).double().numpy()
        predict = getattr(model, "decision_function", model.predict_proba)
        best = best_seconds(
            {
                "module": functools.partial(in_blocks, Trees.of(model, columns, n_classes), x),
                "scikit-learn": functools.partial(predict, raw),
            },
            options.repeats,
        )
        rates = {case: ROWS / seconds for case, seconds in best.items()}
        rows.append({"trees": name, **rates, "ratio": best["module"] / best["scikit-learn"]})
    table = ["| trees | module, rows/s | scikit-learn, rows/s | ratio of times |", "|---|---|---|---|"]
    for row in rows:
        table.append(
            f"| {row['trees']} | {row['module']:,.0f} | {row['scikit-learn']:,.0f} | {row['ratio']:.2f} |"
        )
    print("\n".join(table))
    write_json(options.json, rows)
    write_section(options.results, "Decision trees", "\n".join(table))


if __name__ == "__main__":
    main()
