"""Batches for teams: every network gets each of its own rows once a pass, and nobody else's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal.ensembles.batches import ParallelBatches
from selfcal.errors import DataError, SelfcalError
from selfcal.training.types import Batch


def batches(sizes, batch_size=None, seed=0, weight=None):
    n = sum(sizes)
    x = torch.arange(float(n))[:, None]
    return ParallelBatches(
        x, torch.arange(n) % 2, weight, rows=torch.arange(n).split(sizes), batch_size=batch_size, seed=seed
    )


def rows_by_network(batch: Batch, n):
    """Of each network, the rows of a batch and how much they count."""
    counted = torch.ones(len(batch.y)) if batch.weight is None else batch.weight
    return list(zip(batch.index.view(n, -1).tolist(), counted.view(n, -1).tolist(), strict=True))


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    batch_size=st.none() | st.integers(1, 10),
    number=st.integers(0, 3),
)
def test_a_pass_gives_every_network_each_of_its_rows_once(sizes, batch_size, number):
    data = batches(sizes, batch_size)
    seen = [[] for _ in sizes]
    given = list(data.one_pass(number))
    assert len(given) == len(data)
    for batch in given:
        assert batch_size is None or len(batch.y) <= batch_size * len(sizes)
        assert torch.equal(batch.x[:, 0], batch.index.float())
        assert torch.equal(batch.y, batch.index % 2)
        for own, (rows, counts) in zip(seen, rows_by_network(batch, len(sizes)), strict=True):
            own += [row for row, count in zip(rows, counts, strict=True) if count]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    assert [sorted(own) for own in seen] == [
        list(range(a, a + n)) for a, n in zip(starts, sizes, strict=True)
    ]


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), batch_size=st.none() | st.integers(1, 10))
def test_rows_that_fill_up_are_the_networks_own(sizes, batch_size):
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    for batch in batches(sizes, batch_size).one_pass(1):
        for (rows, _), end, size in zip(rows_by_network(batch, len(sizes)), ends, sizes, strict=True):
            assert all(end - size <= row < end for row in rows)


def test_sample_weights_count_and_rows_that_fill_up_do_not():
    data = batches([3, 2], weight=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert next(data.one_pass(0)).weight.tolist() == [1, 2, 3, 4, 5, 0]


def test_shares_of_one_size_need_no_weights():
    assert next(batches([3, 3]).one_pass(0)).weight is None


def test_order_depends_on_the_seed_and_the_pass_alone():
    def order(seed, number):
        return [batch.index.tolist() for batch in batches([20, 20], 5, seed).one_pass(number)]

    assert order(0, 0) == order(0, 0)
    assert len({str(order(*key)) for key in ((0, 0), (0, 1), (1, 0))}) == 3
    first, second = torch.tensor(order(0, 0)).view(4, 2, 5).transpose(0, 1).reshape(2, 20)
    assert (first + 20).tolist() != second.tolist()  # each network has an order of its own


def test_networks_may_share_rows():
    rows = torch.tensor([0, 2])
    data = ParallelBatches(torch.zeros(3, 1), torch.tensor([0, 1, 1]), rows=[rows, rows])
    assert next(data.one_pass(0)).index.tolist() == [0, 2, 0, 2]
    assert data.n_rows == 3


def test_identity_tells_the_rows_of_one_network_from_those_of_another():
    assert [str(part) for part in batches([2, 4]).identity()] != [
        str(part) for part in batches([4, 2]).identity()
    ]


@pytest.mark.parametrize("rows", [[], [torch.tensor([0]), torch.tensor([], dtype=torch.long)]])
def test_every_network_needs_rows(rows):
    with pytest.raises(DataError, match="Every network needs at least one row"):
        ParallelBatches(torch.zeros(2, 1), torch.tensor([0, 1]), rows=rows)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"batch_size": 0}, "batch_size must be a whole number"), ({"weight": torch.ones(3)}, "weight has 3")],
)
def test_bad_settings(settings, message):
    with pytest.raises(SelfcalError, match=message):
        batches([3, 2], **settings)
