"""What a process does alone; several together are tested in tests/distributed."""

import pytest
import torch

from selfcal.training import distributed
from selfcal.training.batches import TensorBatches
from selfcal.training.types import Batch


@pytest.fixture
def processes(monkeypatch):
    """Pretend to be one of several processes."""

    def pretend(rank, of):
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        monkeypatch.setattr(distributed, "n_processes", lambda: of)

    return pretend


def test_one_process_exchanges_nothing():
    value = torch.ones(3)
    batch = Batch(value, value)
    for same in (distributed.copied, distributed.summed, distributed.averaged, distributed.from_first):
        assert same(value) is value
    assert distributed.gathered(value, 3) is value
    assert distributed.whole(batch) is batch
    assert distributed.largest([1, 2]) == [1, 2]
    assert distributed.bytes_from_first(b"abc") == b"abc"
    assert distributed.of_each(value).tolist() == [[1, 1, 1]]
    data = TensorBatches(value[:, None], value.long())
    assert distributed.own_part(data) is data


@pytest.mark.parametrize("rows", [0, 1, 5, 8])
def test_the_parts_of_all_processes_are_the_batch(rows, processes):
    x = torch.arange(float(rows))[:, None]
    found = []
    for rank in range(3):
        processes(rank, of=3)
        found.append(x[distributed._part(rows)])
    assert torch.equal(torch.cat(found), x)
    assert [len(part) for part in found] == [len(part) for part in x.tensor_split(3)]


def test_batches_are_split_with_all_that_belongs_to_a_row(processes):
    x, y, weight = torch.arange(10.0)[:, None], torch.arange(10) % 2, torch.rand(10) + 0.1
    data = TensorBatches(x, y, weight, batch_size=5)
    processes(1, of=2)
    part = distributed.own_part(data)
    assert (part.n_rows, len(part)) == (10, 2)
    for own, every in zip(part.one_pass(3), data.one_pass(3), strict=True):
        assert torch.equal(own.index, every.index[3:])
        assert torch.equal(own.x[:, 0].long(), own.index)
        assert torch.equal(own.weight, weight[own.index])
    assert not hasattr(part, "halved")
