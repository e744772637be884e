"""Train networks as a user would, alone or under torchrun; the first process writes what came out.

Usage: training_script.py FOLDER CASE STEPS
"""

import datetime
import os
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from selfcal import hypergradients, optimizers, recipes, train

RANK = int(os.environ.get("RANK", "0"))
OPTIMIZERS = {"sgd": (optimizers.SGD(lr=0.05), 203), "adam": (optimizers.Adam(lr=0.01), 32)}
"""With a batch size: 203 rows are uneven in two and in four processes."""
RECIPES = {
    "standard": recipes.standard(),
    "bo4sc": recipes.bo4sc(inner_steps=5),
    "gamma_net_sece": recipes.gamma_net_sece(),
    "ce_dece": recipes.ce_dece(),
    "dynamic_pruning": recipes.dynamic_pruning(every=2),
    "unrolled": replace(recipes.bo4sc(inner_steps=5), hypergradient=hypergradients.Unrolled()),
    "forward_bo4sc": replace(recipes.bo4sc(inner_steps=5), hypergradient=hypergradients.OneStep("forward")),
    "forward_gamma_net": replace(recipes.gamma_net_sece(), hypergradient=hypergradients.OneStep("forward")),
    "implicit": replace(recipes.bo4sc(inner_steps=5), hypergradient=hypergradients.ConjugateGradient()),
}


def rows(n_rows=308):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_rows, 4, generator=generator)
    noise = 0.5 * torch.randn(n_rows, generator=generator)
    return x, (x[:, 0] + noise > 0).long() + (x[:, 1] > 1).long()


def network(*further):
    torch.manual_seed(RANK)  # the first process decides where all start
    return nn.Sequential(nn.Linear(4, 16), *further, nn.Tanh(), nn.Linear(16, 3))


def parts():
    """Training, outer and selection data."""
    x, y = rows()
    return (x[:203], y[:203]), (x[203:250], y[203:250]), (x[250:], y[250:])


def equal(out):
    for name, recipe in RECIPES.items():
        for rule, (optimizer, size) in OPTIMIZERS.items():
            settings = {"recipe": recipe, "optimizer": optimizer, "batch_size": size}
            out[f"{name}/{rule}"] = train(network(), *parts(), max_steps=STEPS, **settings)


def loader(out):
    first, *others = parts()
    shuffled = DataLoader(TensorDataset(*first), batch_size=29, shuffle=True)
    settings = {"recipe": RECIPES["bo4sc"], "optimizer": OPTIMIZERS["adam"][0]}
    out["loader"] = train(network(), shuffled, *others, max_steps=STEPS, **settings)


def statistics(out):
    """BatchNorm: each process normalises its part; running averages are the mean of theirs."""
    module = network(nn.BatchNorm1d(16, momentum=1.0))
    settings = {"recipe": RECIPES["standard"], "optimizer": optimizers.SGD(lr=1e-9)}
    out["statistics"] = train(module, parts()[0], max_steps=1, **settings)


def resumed(out):
    """Dropout and BatchNorm, saved all the time."""
    (FOLDER / f"process-{RANK}").write_text(str(os.getpid()))
    module = network(nn.Dropout(0.1), nn.BatchNorm1d(16))
    settings = {"recipe": RECIPES["bo4sc"], "optimizer": OPTIMIZERS["adam"][0], "batch_size": 32}
    saving = {"checkpoint": FOLDER / "checkpoint", "checkpoint_seconds": 0.1}
    out["resumed"] = train(module, *parts(), max_steps=STEPS, patience=None, **settings, **saving)


def disk_full(out):
    """The first process, which saves for all, cannot write the checkpoint."""
    if RANK == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
    resumed(out)


def hanging(out):
    """The second process stops answering; the time limit is the caller's own."""
    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))

    def callback(event):
        if RANK == 1:
            time.sleep(60)

    settings = {"recipe": RECIPES["standard"], "optimizer": OPTIMIZERS["sgd"][0], "batch_size": 32}
    train(network(), *parts(), callback=callback, **settings)


if __name__ == "__main__":
    FOLDER, CASE, STEPS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    results = {}
    {case.__name__: case for case in (equal, loader, statistics, resumed, disk_full, hanging)}[CASE](results)
    if RANK == 0:
        tensors = {}
        for key, result in results.items():
            tensors |= {f"{key}/{name}": value for name, value in result.module.state_dict().items()}
            tensors |= {f"{key}/outer {name}": value for name, value in result.outer_params.items()}
            tensors[f"{key}/selection"] = torch.as_tensor(result.history.selection_loss)
        contiguous = {name: value.clone().contiguous() for name, value in tensors.items()}
        save_file(contiguous, FOLDER / "result.safetensors")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        assert not [name for name in threads if "gloo" in name]  # one that is left may end with an abort
