"""Training with a checkpoint at its default interval, beside the same training without.

The bar: at most 1.03 times the time. These runs are shorter than the interval of 30 seconds, but every run saves
itself at its start and at its end: the longer a run, the smaller the fraction. The last column is what the longest
save would take every 30 seconds; where that is more than 2%, saves come less often.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import ImageBatches, TensorBatches, models, optimizers, recipes, train
from selfcal.training.checkpoint import Generations

INTERVAL = 30.0
Training = Callable[[Path | None], object]


def table(steps: int) -> Training:
    """A small network on a table of 2,000 rows by `bo4sc`, in batches of 256."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2800, 20, generator=generator)
    y = (x[:, :3].sum(dim=1) + torch.randn(2800, generator=generator) > 0).long()
    parts = [
        TensorBatches(x[a:b], y[a:b], batch_size=256) for a, b in ((0, 2000), (2000, 2400), (2400, 2800))
    ]

    def run(folder: Path | None) -> object:
        torch.manual_seed(0)
        module = models.mlp(20, 2, hidden=(64, 64))
        options = {"recipe": recipes.bo4sc(), "optimizer": optimizers.Adam(lr=1e-3), "patience": None}
        return train(module, *parts, **options, max_steps=steps, checkpoint=folder, progress=False)

    return run


def images(steps: int, width: int) -> Training:
    """A ResNet-18 on 28 x 28 images, in batches of 64."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(256, size=(1280, 1, 28, 28), dtype=np.uint8)
    data = ImageBatches(pixels, rng.integers(10, size=1280), batch_size=64, augment=True)

    def run(folder: Path | None) -> object:
        torch.manual_seed(0)
        module = models.resnet18(10, width=width, channels=1)
        rule = optimizers.SGD(lr=0.01, momentum=0.9)
        options = {"recipe": recipes.standard(), "optimizer": rule, "progress": False}
        return train(module, data, **options, max_steps=steps, checkpoint=folder)

    return run


def saved(training: Training) -> tuple[float, int]:
    """Seconds that the longest save of a run takes, and the bytes of its last file."""
    longest, save = 0.0, Generations.save

    def timed(self: Generations, state: dict[str, object]) -> Path:
        nonlocal longest
        started = time.perf_counter()
        path = save(self, state)
        longest = max(longest, time.perf_counter() - started)
        return path

    Generations.save = timed  # type: ignore[method-assign, assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            training(Path(folder))
            size = max(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    finally:
        Generations.save = save  # type: ignore[method-assign]
    return longest, size


def with_checkpoint(training: Training) -> None:
    with tempfile.TemporaryDirectory() as folder:
        training(Path(folder))


def main() -> None:
    options = parser(__doc__, repeats=3).parse_args()
    torch.set_num_threads(1)
    cases = {
        "bo4sc on a table, 64 x 64 units": table(6000),
        "standard, ResNet-18 of width 16": images(120, 16),
        "standard, ResNet-18 of width 64": images(20, 64),
    }
    rows: list[dict[str, object]] = []
    lines = ["| training | seconds | with checkpoint | MB | a save every 30 s |", "|---|---|---|---|---|"]
    for name, training in cases.items():
        pair = {"without": lambda t=training: t(None), "with": lambda t=training: with_checkpoint(t)}
        best = best_seconds(pair, options.repeats)
        seconds, size = saved(training)
        row = {"case": name, **best, "ratio": best["with"] / best["without"], "save": seconds, "bytes": size}
        rows.append(row)
        lines.append(
            f"| {name} | {best['without']:.1f} | {row['ratio']:.3f} x | {size / 1e6:.1f} | "
            f"{seconds / INTERVAL:.2%} |"
        )
        print(lines[-1], flush=True)
    write_json(options.json, rows)
    write_section(options.results, "What checkpoints cost", "\n".join(lines))


if __name__ == "__main__":
    main()
