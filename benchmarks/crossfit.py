"""Five cross-fitted perceptrons in one program, beside one plain training of as many steps on all rows.

The bar: at most 3.5 times the time at width 64 and 700 to 1,000 rows, at most 5.2 times at width 256. Each of the
five sees four fifths of the rows, so that five take four times the multiplications; what a step costs beside them is
paid once. The last column is the same five networks through `torch.func.vmap`, forward and backward only, on one
thread; on two threads it came out between 0.89 (width 64) and 1.21 (width 256): neither way is faster everywhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import models, optimizers, recipes, train
from selfcal.datasets import Blobs
from selfcal.ensembles.folds import CrossFit
from selfcal.ensembles.modules import ParallelNetworks
from selfcal.ensembles.training import Rows, train_members

STEPS, FOLDS = 60, 5


def networks(width: int, count: int) -> list[nn.Module]:
    """Perceptrons with two hidden layers."""
    torch.manual_seed(0)
    return [models.mlp(2, 5, hidden=(width, width)) for _ in range(count)]


def programs(width: int, n_rows: int) -> dict[str, Callable[[], object]]:
    """The trainings and passes to time."""
    X, y = Blobs(std=1.7).sample(n_rows, seed=0)
    x = torch.from_numpy(X).float()
    splits = CrossFit(FOLDS).splits(y, seed=0)
    options = {"optimizer": optimizers.Adam(lr=1e-3), "patience": None, "progress": False}
    plain = (x, torch.from_numpy(y))

    def one() -> object:
        (module,) = networks(width, 1)
        return train(module, plain, recipe=recipes.standard(), max_steps=STEPS, **options)

    def five() -> object:
        rows = Rows(x, y, None)
        settings = {"max_epochs": STEPS, "batch_size": None, "early_stopping": False, **options}
        return train_members(networks(width, FOLDS), splits, rows, recipe=recipes.standard(), **settings)

    rows = np.stack([split.train[: n_rows * (FOLDS - 1) // FOLDS - 1] for split in splits])
    stacked_x, stacked_y = x[rows], torch.from_numpy(y[rows])
    return {
        "one": one,
        "five": five,
        "ensemble passes": passes(networks(width, FOLDS), stacked_x, stacked_y, batched=False),
        "vmap passes": passes(networks(width, FOLDS), stacked_x, stacked_y, batched=True),
    }


def passes(members: list[nn.Module], x: Tensor, y: Tensor, *, batched: bool) -> Callable[[], object]:
    """As many forward and backward passes as a training has steps."""
    if not batched:
        parallel = ParallelNetworks(members)
        weights = list(parallel.parameters())

        def logits() -> Tensor:
            return parallel(x.flatten(0, 1))
    else:
        params, _ = stack_module_state(members)
        weights = list(params.values())
        each = vmap(lambda own, rows: functional_call(members[0], own, (rows,)))

        def logits() -> Tensor:
            return each(params, x).flatten(0, 1)

    def run() -> None:
        for _ in range(STEPS):
            torch.autograd.grad(F.cross_entropy(logits(), y.flatten()), weights)

    return run


def main() -> None:
    """Print a table of ratios."""
    options = parser(__doc__, repeats=7)
    given = options.parse_args()
    rows: list[dict[str, object]] = []
    for width in (64, 256):
        for n_rows in (700, 1000):
            best = best_seconds(programs(width, n_rows), given.repeats)
            rows.append(
                {
                    "width": width,
                    "rows": n_rows,
                    "one network, ms a step": 1000 * best["one"] / STEPS,
                    "five networks / one": best["five"] / best["one"],
                    "bar": 3.5 if width == 64 else 5.2,
                    "vmap / ensemble": best["vmap passes"] / best["ensemble passes"],
                }
            )
    head = list(rows[0])
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [
        " | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()) for row in rows
    ]
    body = "\n".join(f"| {line} |" for line in lines)
    print(body)
    write_json(given.json, rows)
    write_section(given.results, "Cross-fitting: time", f"{(__doc__ or '').strip()}\n\n{body}")


if __name__ == "__main__":
    main()
