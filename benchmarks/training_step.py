"""What a step of selfcal costs beside a hand-written torch loop, on the same network and data.

The bar: `standard` takes at most 1.10 times the time of the hand-written loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import BilevelStep, optimizers, recipes
from selfcal.models import mlp

STEPS = 100
ROWS, FEATURES, CLASSES = 700, 2, 5


def hand_written(width: int, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    module = mlp(FEATURES, CLASSES, hidden=(width, width))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)

    def run() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()

    return run


def ours(width: int, x: torch.Tensor, y: torch.Tensor, recipe: recipes.Recipe) -> Callable[[], None]:
    module = mlp(FEATURES, CLASSES, hidden=(width, width))
    step = BilevelStep(module, optimizers.Adam(lr=0.01), recipe, n_train=ROWS)
    train, outer = (x, y, torch.arange(ROWS)), (x[:300], y[:300])

    def run() -> None:
        for _ in range(STEPS):
            step(train, outer)

    return run


def main() -> None:
    options = parser(__doc__, repeats=15).parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    print(f"{'width':>6} {'case':<24} {'ms a step':>10} {'ratio':>6}")
    for width in (64, 256):
        torch.manual_seed(0)
        x, y = torch.randn(ROWS, FEATURES), torch.randint(CLASSES, (ROWS,))
        cases = {
            "hand-written loop": hand_written(width, x, y),
            "standard": ours(width, x, y, recipes.standard()),
            "bo4sc, T = 10": ours(width, x, y, recipes.bo4sc(inner_steps=10)),
        }
        best = best_seconds(cases, options.repeats)
        for name, seconds in best.items():
            ratio = seconds / best["hand-written loop"]
            print(f"{width:>6} {name:<24} {1000 * seconds / STEPS:>10.3f} {ratio:>6.2f}")
            rows.append({"width": width, "case": name, "seconds": seconds / STEPS, "ratio": ratio})
    write_json(options.json, rows)
    table = ["| width | case | ms a step | ratio |", "|---|---|---|---|"]
    table += [f"| {r['width']} | {r['case']} | {1000 * r['seconds']:.3f} | {r['ratio']:.2f} |" for r in rows]
    write_section(options.results, "A training step", "\n".join(table))


if __name__ == "__main__":
    main()
