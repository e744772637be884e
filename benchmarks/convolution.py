"""An epoch of a ResNet-18 of width 16 by several recipes, beside a hand-written torch loop with the same loader.

Mini-batches of 128 cropped and flipped 28 x 28 images (of random pixels: time does not depend on them), SGD with
momentum. The bars: `standard` at most 1.08 times the loop, `bo4sc` with an outer step every tenth batch at most 1.25
times, `gamma_net_sece` at most 3.0 times with an outer step every batch and at most 1.4 times every fifth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import BilevelStep, ImageBatches, models, optimizers, recipes

ROWS, OUTER_ROWS, BATCH, WIDTH = 2560, 1280, 128, 16


def network() -> nn.Module:
    torch.manual_seed(0)
    return models.resnet18(10, width=WIDTH, channels=1)


def plain(train: ImageBatches) -> Callable[[], None]:
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)

    def epoch() -> None:
        for batch in train.one_pass(0):
            optimizer.zero_grad()
            F.cross_entropy(module(batch.x), batch.y).backward()
            optimizer.step()

    return epoch


def ours(train: ImageBatches, outer: ImageBatches, recipe: recipes.Recipe) -> Callable[[], None]:
    rule = optimizers.SGD(lr=0.02, momentum=0.9, weight_decay=5e-4)
    step = BilevelStep(network(), rule, recipe, n_train=train.n_rows)

    def epoch() -> None:
        stream = (batch for number in range(ROWS) for batch in outer.one_pass(number))
        for batch in train.one_pass(0):
            step(batch, next(stream) if step.outer_due else None)

    return epoch


def main() -> None:
    options = parser(__doc__, repeats=3).parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)

    def batches(rows: int, *, augment: bool) -> ImageBatches:
        images = rng.integers(256, size=(rows, 1, 28, 28), dtype=np.uint8)
        return ImageBatches(images, rng.integers(10, size=rows), batch_size=BATCH, augment=augment)

    train, outer = batches(ROWS, augment=True), batches(OUTER_ROWS, augment=False)
    cases = {
        "standard": recipes.standard(),
        "bo4sc, every tenth batch": recipes.bo4sc(inner_steps=10),
        "gamma_net_sece, every fifth batch": recipes.gamma_net_sece(every=5),
        "gamma_net_sece, every batch": recipes.gamma_net_sece(every=1),
    }
    best = best_seconds(
        {
            "hand-written torch loop": plain(train),
            **{name: ours(train, outer, recipe) for name, recipe in cases.items()},
        },
        options.repeats,
    )
    rows = [
        {"case": name, "seconds": seconds, "ratio": seconds / best["hand-written torch loop"]}
        for name, seconds in best.items()
    ]
    table = ["| case | seconds an epoch | ratio |", "|---|---|---|"]
    table += [f"| {row['case']} | {row['seconds']:.2f} | {row['ratio']:.2f} |" for row in rows]
    print("\n".join(table))
    write_json(options.json, rows)
    write_section(options.results, "An epoch of a convolutional network with BatchNorm", "\n".join(table))


if __name__ == "__main__":
    main()
