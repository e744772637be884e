"""The slope in gamma, on images made here."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import gamma_slope
from selfcal import Batch, Output
from selfcal.experiments import images


def test_objectives_take_turns():
    in_turn = gamma_slope.InTurn(tuple(gamma_slope.OBJECTIVES.values()))
    output, batch = (
        Output(torch.tensor([[2.0, 0.0], [0.5, 0.0]])),
        Batch(torch.zeros(2, 1), torch.tensor([0, 1])),
    )
    expected = [objective(output, batch) for objective in gamma_slope.OBJECTIVES.values()] * 2
    assert [float(in_turn(output, batch)) for _ in range(6)] == pytest.approx([float(v) for v in expected])


def test_every_phase_has_a_gap_and_a_signal_of_each_objective(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(280) % 10
    x = rng.integers(0, 255, size=(280, 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "fashion_mnist.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    narrow = images.profile_of("meta-regularization", "narrow")
    tiny = replace(narrow, networks={"resnet8": 2}, rows=None, epochs=64, batch_size=20)
    monkeypatch.setattr(gamma_slope.images, "profile_of", lambda *names: tiny)
    rows = gamma_slope.watched(0.5, tmp_path, seed=0)
    assert [row["phase"] for row in rows] == list(gamma_slope.PHASES)
    assert all(np.isfinite(row[name]) for row in rows for name in ("gap", *gamma_slope.OBJECTIVES))
    assert gamma_slope.table_of(rows).splitlines()[-1].startswith("| 0.5 | ")
