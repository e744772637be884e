import numpy as np
import pytest
import torch

from selfcal.training.history import Recorder


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


def recorded(steps):
    """An outer step after every second of so many steps, in a recorder with room for four snapshots."""
    recorder = Recorder(budget=4 * 8 * 5)
    recorder.snapshot(0, {"weight": torch.zeros(5, dtype=torch.float64)})
    record(recorder, range(1, steps + 1))
    return recorder


def record(recorder, steps):
    for step in steps:
        recorder.inner_loss.append(1 / step)
        if step % 2 == 0:
            recorder.outer.append((step, 2.0 / step))
            recorder.snapshot(step, {"weight": torch.full((5,), float(step), dtype=torch.float64)})
        if step % 5 == 0:
            recorder.selection.append((step, 3.0 / step))


def equal(ours, theirs):
    for name, value in vars(ours).items():
        np.testing.assert_equal(value, vars(theirs)[name], err_msg=name)


@pytest.mark.parametrize("at", [0, 1, 8, 29])
def test_continuing_from_a_state_changes_nothing(at):
    again = Recorder(budget=4 * 8 * 5)
    again.load_state(recorded(at).state())
    record(again, range(at + 1, 41))
    equal(again.history(), recorded(40).history())


def test_rolling_back_forgets_what_came_after_the_good_step():
    recorder = recorded(27)
    recorder.rollbacks.append(28)
    recorder.forget_after(25, {"weight": torch.full((5,), 24.0, dtype=torch.float64)})
    history, expected = recorder.history(), recorded(25).history()
    assert history.rollback_step.tolist() == [28]
    for name in ("inner_loss", "outer_step", "outer_loss", "selection_step", "selection_loss"):
        np.testing.assert_array_equal(getattr(history, name), getattr(expected, name))
    assert history.snapshot_step[-1] == 24
    np.testing.assert_array_equal(history.snapshots["weight"][:, 0], history.snapshot_step)
