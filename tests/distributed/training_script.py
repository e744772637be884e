"""Train networks as a user would, alone or under torchrun; the first process writes what came out.

Usage: training_script.py FOLDER CASE [STEPS]
"""

import datetime
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from selfcal import hypergradients, optimizers, recipes, train

FOLDER, CASE = Path(sys.argv[1]), sys.argv[2]
STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 40
RANK = int(os.environ.get("RANK", "0"))
OPTIMIZERS = {"sgd": optimizers.SGD(lr=0.05), "adam": optimizers.Adam(lr=0.01)}
RECIPES = {
    "standard": recipes.standard(),
    "bo4sc": recipes.bo4sc(inner_steps=5),
    "gamma_net_sece": recipes.gamma_net_sece(),
    "ce_dece": recipes.ce_dece(),
    **{
        name: replace(recipes.bo4sc(inner_steps=5), hypergradient=hypergradient)
        for name, hypergradient in {
            "forward mode": hypergradients.OneStep(tangent="forward"),
            "unrolled": hypergradients.Unrolled(),
            "finite difference": hypergradients.FiniteDifference(),
            "conjugate gradient": hypergradients.ConjugateGradient(),
        }.items()
    },
}


def rows(n_rows=308):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_rows, 4, generator=generator)
    noise = 0.5 * torch.randn(n_rows, generator=generator)
    return x, (x[:, 0] + noise > 0).long() + (x[:, 1] > 1).long()


def network(*further):
    torch.manual_seed(RANK)  # the first process decides where all start
    return nn.Sequential(nn.Linear(4, 16), *further, nn.Tanh(), nn.Linear(16, 3))


def split(x, y, *, batch_size):
    """Training, outer and selection data; 203 rows in batches of 29 are uneven for two and for four processes."""
    parts = [(x[:203], y[:203]), (x[203:250], y[203:250]), (x[250:], y[250:])]
    return parts, {"batch_size": batch_size}


def equal(out):
    for name, recipe in RECIPES.items():
        for rule, optimizer in OPTIMIZERS.items():
            for size in (32, 203):
                parts, sizes = split(*rows(), batch_size=size)
                module = network()
                result = train(
                    *((module, *parts)), recipe=recipe, optimizer=optimizer, max_steps=STEPS, **sizes
                )
                out[f"{name}/{rule}/{size}"] = (module, result)


def loader(out):
    (first, *others), _ = split(*rows(), batch_size=None)
    shuffled = DataLoader(TensorDataset(*first), batch_size=29, shuffle=True)
    module = network()
    result = train(
        module,
        shuffled,
        *others,
        recipe=RECIPES["bo4sc"],
        optimizer=OPTIMIZERS["adam"],
        max_steps=STEPS,
    )
    out["loader"] = (module, result)


def statistics(out):
    """BatchNorm: each process normalises its part; running averages are the mean of theirs."""
    parts, _ = split(*rows(), batch_size=None)
    module = network(nn.BatchNorm1d(16, momentum=1.0))
    result = train(
        module, parts[0], recipe=RECIPES["standard"], optimizer=optimizers.SGD(lr=0.0), max_steps=1
    )
    out["statistics"] = (module, result)


def resumed(out):
    """Dropout and BatchNorm, saved all the time."""
    (FOLDER / f"process-{RANK}").write_text(str(os.getpid()))
    parts, sizes = split(*rows(), batch_size=32)
    module = network(nn.Dropout(0.1), nn.BatchNorm1d(16))
    result = train(
        *(module, *parts),
        recipe=RECIPES["bo4sc"],
        optimizer=OPTIMIZERS["adam"],
        max_steps=STEPS,
        patience=None,
        checkpoint=FOLDER / "checkpoint",
        checkpoint_seconds=0.1,
        **sizes,
    )
    out["resumed"] = (module, result)


def hanging(out):
    """The second process stops answering; the time limit is the caller's own."""
    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))

    def callback(event):
        if RANK == 1:
            time.sleep(60)

    parts, sizes = split(*rows(), batch_size=32)
    train(
        *(network(), *parts),
        recipe=RECIPES["standard"],
        optimizer=OPTIMIZERS["sgd"],
        callback=callback,
        **sizes,
    )


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    results = {}
    {f.__name__: f for f in (equal, loader, statistics, resumed, hanging)}[CASE](results)
    if RANK == 0:
        tensors = {}
        for key, (module, result) in results.items():
            tensors |= {f"{key}/{name}": value for name, value in module.state_dict().items()}
            tensors |= {f"{key}/outer {name}": value for name, value in result.outer_params.items()}
            tensors[f"{key}/selection"] = torch.as_tensor(result.history.selection_loss)
        save_file(
            {name: value.clone().contiguous() for name, value in tensors.items()},
            FOLDER / "result.safetensors",
        )
