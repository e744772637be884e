"""An epoch of bilevel training of a small residual network with BatchNorm, beside a plain epoch.

Mini-batches of 128 on Fashion-MNIST, SGD with momentum, one outer step with `OneStep` every 10 inner steps. The bar:
at most 1.25 times the plain epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import BilevelStep, TensorBatches, optimizers, recipes

ROWS, OUTER_ROWS, BATCH = 3840, 1280, 128


class Block(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.way(x) + self.shortcut(x))


def network(width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )


def plain(train: TensorBatches) -> Callable[[], None]:
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)

    def epoch() -> None:
        for batch in train.one_pass(0):
            optimizer.zero_grad()
            F.cross_entropy(module(batch.x), batch.y).backward()
            optimizer.step()

    return epoch


def ours(train: TensorBatches, outer: TensorBatches, recipe: recipes.Recipe) -> Callable[[], None]:
    step = BilevelStep(network(), optimizers.SGD(lr=0.02, momentum=0.9), recipe, n_train=train.n_rows)

    def epoch() -> None:
        stream = outer.one_pass(0)
        for batch in train.one_pass(0):
            step(batch, next(stream, None) if step.outer_due else None)

    return epoch


def main() -> None:
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--data", type=Path, required=True, help="fashion_mnist.npz")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    with np.load(options.data, allow_pickle=False) as file:
        images, labels = file["x_train"], file["y_train"]
    x = torch.from_numpy(images[: ROWS + OUTER_ROWS]).float().unsqueeze(1).div_(255).sub_(0.286).div_(0.353)
    y = torch.from_numpy(labels[: ROWS + OUTER_ROWS].astype(np.int64))

    def batches(rows: slice) -> TensorBatches:
        return TensorBatches(x[rows], y[rows], batch_size=BATCH)

    first, second = slice(0, ROWS), slice(ROWS, None)
    best = best_seconds(
        {
            "plain torch loop": plain(batches(first)),
            "standard": ours(batches(first), batches(second), recipes.standard()),
            "bo4sc, OneStep every 10": ours(batches(first), batches(second), recipes.bo4sc(inner_steps=10)),
        },
        options.repeats,
    )
    rows = [
        {"case": name, "seconds": seconds, "ratio": seconds / best["plain torch loop"]}
        for name, seconds in best.items()
    ]
    table = ["| case | seconds an epoch | ratio |", "|---|---|---|"]
    table += [f"| {row['case']} | {row['seconds']:.2f} | {row['ratio']:.2f} |" for row in rows]
    print("\n".join(table))
    write_json(options.json, rows)
    write_section(options.results, "An epoch of a convolutional network with BatchNorm", "\n".join(table))


if __name__ == "__main__":
    main()
