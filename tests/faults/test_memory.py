"""F9: memory runs out in training. Batches are halved, training goes on, and the result says so everywhere.

D29: what many classes take is known before training.
"""

import json
import os
import tracemalloc

import numpy as np
import polars as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from selfcal import BilevelStep, ImageBatches, TensorBatches
from selfcal.errors import DataError, RecoveryWarning, TrainingError
from selfcal.training import checkpoint
from selfcal.training.batches import halved
from selfcal.training.checkpoint import Generations, unpacked
from selfcal.training.loader_batches import as_batches
from selfcal.training.problem import BilevelProblem
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import QUICK, as_json, run, shelf, succeed
from tests.faults.training import data, digest, network
from tests.faults.training import run as run_training

__all__ = ["shelf"]  # the fixture

NO_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:116] DefaultCPUAllocator: can't allocate memory: 8 bytes"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
]


@pytest.fixture
def memory_for(monkeypatch):
    """Memory for so many rows and no more: what needs more fails as `error`, after half of its work."""

    evaluate, look, limit = BilevelProblem.evaluate, BilevelProblem.outer, {}

    def check(batch):
        if len(batch.x) > limit["rows"]:
            raise limit["error"]

    def evaluate_or_fail(self, outer, batch, **settings):
        found = evaluate(self, outer, batch, **settings)  # running statistics have moved by now
        check(batch)
        return found

    def look_or_fail(self, theta, outer, batch):
        check(batch)
        return look(self, theta, outer, batch)

    def set_limit(rows, error=NO_MEMORY[2]):
        limit.update(rows=rows, error=error)

    set_limit(10**9)
    monkeypatch.setattr(BilevelProblem, "evaluate", evaluate_or_fail)
    monkeypatch.setattr(BilevelProblem, "outer", look_or_fail)
    return set_limit


@pytest.mark.fault("F9")
@pytest.mark.parametrize("error", NO_MEMORY, ids=["python", "cuda", "linux", "windows"])
@pytest.mark.parametrize("recipe", ["standard", "bo4sc"])
def test_the_batch_is_halved_until_it_fits(recipe, error, memory_for):
    memory_for(20, error)
    with pytest.warns(
        RecoveryWarning, match=r"^Batch reduced: memory ran out after step \[0, 0, 0\].*of 15 rows"
    ):
        result = run_training(recipe, batch_size=None)
    assert result.history.reduction_step.tolist() == [0, 0, 0]
    assert result.n_steps == len(result.history.inner_loss) == 60
    assert result.history.rollback_step.size == 0


@pytest.mark.fault("F9")
def test_what_was_done_before_the_failure_leaves_no_trace(memory_for):
    """From where memory ran out at once, the run is the one that was asked for with the smaller batch."""
    expected = run_training("bo4sc", batch_size=16)
    memory_for(16)
    with pytest.warns(RecoveryWarning, match="Batch reduced"):
        result = run_training("bo4sc", batch_size=32)
    for name, value in expected.module.state_dict().items():
        assert torch.equal(result.module.state_dict()[name], value), name
    np.testing.assert_array_equal(result.history.inner_loss, expected.history.inner_loss)


@pytest.mark.fault("F9")
@pytest.mark.filterwarnings("ignore:Batch reduced:selfcal.errors.RecoveryWarning")
def test_a_smaller_batch_outlives_the_process(memory_for, tmp_path, monkeypatch):
    """Stopped before and after memory runs out in the middle, the run comes to the same bits."""
    monkeypatch.setattr(checkpoint, "MAX_SAVING_FRACTION", float("inf"))

    class Stopped(Exception):  # noqa: N818 - not an error
        pass

    def go(folder=None, stop=None):
        def watch(event):
            memory_for(1000 if event.n_steps < 24 else 16)
            if event.n_steps == stop:
                raise Stopped

        memory_for(1000)
        return run_training("bo4sc", folder, batch_size=32, callback=watch)

    whole = go()
    assert whole.history.reduction_step.tolist() == [24]
    for stop in (12, 24, 42):
        with pytest.raises(Stopped):
            go(tmp_path, stop)
    assert digest(go(tmp_path)) == digest(whole)


@pytest.mark.fault("F9")
def test_batches_that_cannot_be_smaller_end_training(memory_for):
    memory_for(2)
    with pytest.raises(
        TrainingError, match=r"Memory ran out after 0 steps with batches of [45] rows, which cannot"
    ) as error:
        run_training("standard", batch_size=32)
    assert error.value.exit_code == 4


@pytest.mark.fault("F9")
def test_other_errors_are_not_mistaken_for_it(memory_for):
    memory_for(2, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2"):
        run_training("standard")


PIXELS = torch.zeros(40, 1, 4, 4, dtype=torch.uint8)
KINDS = {
    "tensors": lambda x, y: TensorBatches(x, y, batch_size=20),
    "images": lambda x, y: ImageBatches(PIXELS, y, batch_size=20),
    "loader": lambda x, y: as_batches(DataLoader(TensorDataset(x, y), batch_size=20)),
}


@pytest.mark.fault("F9")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_batches_can_be_halved(kind):
    x, y = (part[:40] for part in data()[0])
    batches = KINDS[kind](x, y)
    for times, rows in enumerate([20, 10, 5, 5]):
        seen = list(halved(batches, times).one_pass(0))
        assert [len(batch.y) for batch in seen] == [rows] * (40 // rows)
        assert sorted(torch.cat([batch.index for batch in seen]).tolist()) == list(range(40))


@pytest.mark.fault("F9")
def test_the_command_says_so_in_the_note_the_model_and_the_report(shelf, tmp_path, memory_for):
    memory_for(15)
    fit = ["fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK]
    result = succeed(*fit)
    assert "note: Batch reduced: memory ran out after step [0, 0, 0]" in result.stderr
    description = json.loads((tmp_path / "m" / "model.json").read_text())
    assert description["training"]["batch_reduced"] == 3
    assert "Batch reduced" in (tmp_path / "m" / "report.html").read_text()
    assert "Batch reduced" in succeed("inspect", tmp_path / "m").stdout
    assert as_json("inspect", shelf / "people-model")["description"]["training"]["batch_reduced"] == 0
    memory_for(2)
    failed = run(*fit, "--force")
    assert (failed.exit_code, failed.stdout.count("Verdict")) == (4, 0)
    assert "error: Memory ran out after 0 steps with batches of" in failed.stderr
    assert sorted(os.listdir(tmp_path)) == ["m"]
    assert json.loads((tmp_path / "m" / "model.json").read_text()) == description


@pytest.mark.fault("F9")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no way to tell how much memory is in use")
def test_memory_that_runs_out_for_real(nursery, tmp_path):
    """The system gives a process 150 MB more; a layer needs 96 MB, and training several times that."""
    nursery.start("standard", tmp_path, spare=150 * 2**20, settings={"wide": True, "max_steps": 2})
    code, said = nursery.wait()
    assert code == 0, said
    assert unpacked(Generations(tmp_path, {}).files()[0].read_bytes())["state"]["history"]["reductions"]


class Started(Exception):  # noqa: N818 - not an error
    """Training has begun."""


@pytest.mark.fault("D29")
@pytest.mark.parametrize(
    ("method", "network"),
    [
        ("standard", "linear"),
        ("crossfit", "linear"),
        ("ensemble", "linear"),
        pytest.param("auto", None, marks=pytest.mark.slow),
    ],
)
def test_what_many_classes_take_is_refused_before_training(method, network, monkeypatch):
    """Given as much memory as a fit is seen to take, it is refused; given a few times as much, it is not."""
    monkeypatch.setattr(
        "selfcal.ensembles.pooling.fitted_temperature", lambda *_: 1.0
    )  # slow, and done on few rows
    monkeypatch.setattr(
        "selfcal.ensembles.mixing.BLOCK_LOGITS", 2**10
    )  # as little as for tables that are worth refusing
    rng = np.random.default_rng(0)
    n_rows, n_classes = 1500, 150
    X = rng.normal(size=(n_rows, 3))
    kinds = [f"k{i % n_classes}" for i in range(n_rows)]
    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": kinds})

    def fit(memory):
        TableModel(method, max_epochs=1, network=network, memory=memory, hidden=(4,)).fit(table, "kind")

    fit(2**40)  # once before, for what is only loaded when it is used
    tracemalloc.start()
    fit(2**40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    def started(*_):
        raise Started

    monkeypatch.setattr(BilevelStep, "__call__", started)
    with pytest.raises(DataError, match=rf"with method '{method}', {n_classes} classes and .* need about"):
        fit(peak)
    with pytest.raises(Started):
        fit(6 * peak)


def test_the_network_of_these_tests_has_running_statistics():
    assert any(name.endswith("running_mean") for name in network().state_dict())
