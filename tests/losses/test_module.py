import copy
import pickle

import pytest
import torch

from selfcal import losses
from selfcal.errors import ConfigError, DataError
from selfcal.losses import LossModule

LOGITS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 3


@pytest.mark.parametrize("name", [name for name in losses.__all__ if name != "LossModule"])
def test_every_loss_and_reduction(name):
    values = getattr(losses, name)(LOGITS, Y)
    for reduction, expected in {"mean": values.mean(), "sum": values.sum(), "none": values}.items():
        module = LossModule(getattr(losses, name), reduction=reduction)
        torch.testing.assert_close(module(LOGITS, Y), expected)
        assert repr(module) == f"LossModule({name}, reduction={reduction!r})"


def test_settings_reach_the_loss():
    module = LossModule(losses.focal, gamma=2.0)
    torch.testing.assert_close(module(LOGITS, Y), losses.focal(LOGITS, Y, gamma=2.0).mean())
    torch.testing.assert_close(module(LOGITS, Y.int()), module(LOGITS, Y))


def test_a_loop_of_ones_own():
    torch.manual_seed(0)
    net, criterion = torch.nn.Linear(3, 3), LossModule(losses.soft_ece, alpha=0.5)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    before = criterion(net(LOGITS), Y).item()
    for _ in range(20):
        optimizer.zero_grad()
        criterion(net(LOGITS), Y).backward()
        optimizer.step()
    assert criterion(net(LOGITS), Y).item() < before


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"]
)
def test_copies(copied):
    module = LossModule(losses.focal, gamma=2.0, reduction="sum")
    assert repr(copied(module)) == repr(module)
    assert copied(module)(LOGITS, Y) == module(LOGITS, Y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LossModule("focal"), "must be a loss function such as losses.focal; got 'focal'"),
        (
            lambda: LossModule(losses.focal, gama=2.0),
            "hyperparameter of focal .* got 'gama'. Did you mean 'gamma'",
        ),
        (lambda: LossModule(losses.brier, gamma=2.0), "brier has no hyperparameters; got 'gamma'"),
        (lambda: LossModule(losses.focal, gamma=-2.0), "gamma must be a number in .* got -2.0"),
        (lambda: LossModule(losses.focal, reduction="avg"), "reduction must be one of"),
    ],
    ids=["loss", "unknown", "none", "range", "reduction"],
)
def test_wrong_settings_fail_at_once(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (LOGITS, Y.float(), "got shape \\(6, 3\\), and float32 of shape \\(6,\\)"),
        (LOGITS, Y > 0, "bool of shape"),
        (LOGITS, Y[:4], "int64 of shape \\(4,\\)"),
        (LOGITS[0], Y, "got shape \\(3,\\)"),
        (LOGITS[:, :1], 0 * Y, "two classes at least, .* got shape \\(6, 1\\)"),
        (LOGITS[:0], Y[:0], "got shape \\(0, 3\\)"),
        (LOGITS, Y + 1, "class codes from 0 to 2, .* got 3"),
        (LOGITS, Y - 1, "class codes from 0 to 2, .* got -1"),
    ],
    ids=["float", "bool", "short", "flat", "narrow", "empty", "high", "low"],
)
def test_wrong_data(logits, target, message):
    with pytest.raises(DataError, match=message):
        LossModule(losses.cross_entropy)(logits, target)
