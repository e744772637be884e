import numpy as np
import torch

from selfcal.history import Recorder


def test_snapshots_are_thinned_evenly_to_the_budget_and_end_with_the_latest():
    recorder = Recorder(budget=10 * 8 * 5)  # ten snapshots of five float64 values
    for step in range(101):
        recorder.snapshot(step, {"weight": torch.full((5,), float(step), dtype=torch.float64)})
    history = recorder.history()
    steps = history.snapshot_step
    assert len(steps) <= 11
    assert steps[0] == 0
    assert steps[-1] == 100
    assert len(set(np.diff(steps[:-1]))) == 1
    np.testing.assert_array_equal(history.snapshots["weight"][:, 0], steps)


def test_snapshots_are_copies():
    weight, recorder = torch.zeros(2), Recorder()
    recorder.snapshot(0, {"weight": weight})
    weight += 1
    assert (recorder.history().snapshots["weight"] == 0).all()


def test_plain_training_has_no_snapshots():
    recorder = Recorder()
    recorder.snapshot(0, {})
    recorder.inner_loss += [1.0, 0.5]
    history = recorder.history()
    assert history.snapshots == {}
    assert history.inner_loss.tolist() == [1.0, 0.5]
    assert history.outer_loss.shape == history.selection_loss.shape == (0,)
