"""A training step of the image networks in plane layout, as they are, beside channels-last layout; one thread.

Channels-last is unsafe for narrow networks on some CPUs (docs/results/reproducibility.md), but not at these widths.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import models

WIDTHS, ROWS = (16, 32, 64), 64


def step(module: nn.Module, x: Tensor, y: Tensor) -> None:
    F.cross_entropy(module(x), y).backward()


def main() -> None:
    options = parser(__doc__, repeats=5).parse_args()
    torch.set_num_threads(1)
    x, y, last = torch.randn(ROWS, 3, 32, 32), torch.arange(ROWS) % 10, torch.channels_last
    rows: list[dict[str, object]] = []
    for network in (models.resnet18, models.vgg16):
        for width in WIDTHS:
            planes, other = network(width=width), network(width=width).to(memory_format=last)
            other[0] = nn.Identity()  # in place of the layer that asks for planes
            cases = {
                "planes": functools.partial(step, planes, x, y),
                "channels last": functools.partial(step, other, x.contiguous(memory_format=last), y),
            }
            best = best_seconds(cases, options.repeats)
            ratio = best["planes"] / best["channels last"]
            rows.append({"network": network.__name__, "width": width, **best, "ratio": ratio})
    table = ["| network | width | planes, s | channels last, s | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        times = f"{row['planes']:.2f} | {row['channels last']:.2f} | {row['ratio']:.2f}"
        table.append(f"| {row['network']} | {row['width']} | {times} |")
    print("\n".join(table))
    write_json(options.json, rows)
    write_section(options.results, "Memory layout of image networks", "\n".join(table))


if __name__ == "__main__":
    main()
