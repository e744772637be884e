import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from selfcal import ImageBatches, TensorBatches
from selfcal.errors import ConfigError, DataError
from selfcal.training.batches import Endless, as_batch, data_fingerprint
from selfcal.training.loader_batches import as_batches
from selfcal.training.types import Batch

X, Y = torch.arange(10.0)[:, None], torch.arange(10) % 3


def test_one_pass_visits_every_row_once_with_its_place():
    batches = TensorBatches(X, Y, X[:, 0] + 1, batch_size=3, seed=4)
    seen = list(batches.one_pass(0))
    assert len(seen) == len(batches) == 4
    index = torch.cat([b.index for b in seen])
    assert sorted(index.tolist()) == list(range(10))
    for b in seen:
        assert torch.equal(b.x, X[b.index])
        assert torch.equal(b.y, Y[b.index])
        assert torch.equal(b.weight, X[b.index, 0] + 1)


def test_no_batch_is_left_with_a_single_row():
    x = torch.zeros(1025, 1)
    sizes = [len(b.y) for b in TensorBatches(x, x[:, 0].long(), batch_size=256).one_pass(0)]
    assert sizes == [205] * 5


def test_order_depends_on_seed_and_pass_and_on_nothing_else():
    def order(seed, number):
        return [b.index.tolist() for b in TensorBatches(X, Y, batch_size=4, seed=seed).one_pass(number)]

    torch.manual_seed(0)
    first = order(1, 0)
    torch.manual_seed(99)
    assert first == order(1, 0)
    assert first != order(1, 1)
    assert first != order(2, 0)


def test_whole_set_comes_in_order():
    (batch,) = TensorBatches(X, Y).one_pass(3)
    assert batch.index.tolist() == list(range(10))


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_rows_know_their_place(workers):
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True, num_workers=workers)
    batches = as_batches(loader)
    assert (batches.n_rows, len(batches)) == (10, 3)
    for batch in batches.one_pass(0):
        assert torch.equal(batch.x, X[batch.index])
        assert torch.equal(batch.y, Y[batch.index])


def test_loader_keeps_its_own_collate():
    loader = DataLoader(
        TensorDataset(X, Y),
        batch_size=5,
        collate_fn=lambda rows: (torch.stack([r[0] for r in rows]) * 2, Y[:5]),
    )
    assert torch.equal(next(as_batches(loader).one_pass(0)).x, 2 * X[:5])


def test_endless_starts_a_new_pass():
    stream = Endless(TensorBatches(X, Y, batch_size=6))
    assert [len(next(stream).y) for _ in range(5)] == [5, 5, 5, 5, 5]


@pytest.mark.parametrize("taken", range(8))
def test_endless_continues_from_any_position(taken):
    data = TensorBatches(X, Y, batch_size=4)
    stream = Endless(data)
    for _ in range(taken):
        next(stream)
    again = Endless(data)
    again.load_state(stream.state())
    for _ in range(4):
        assert torch.equal(next(again).index, next(stream).index)


def test_fingerprints_tell_data_and_order_apart():
    def images(**settings):
        pixels = torch.zeros(10, 1, 8, 8, dtype=torch.uint8)
        return ImageBatches(pixels, Y, **{"batch_size": 4, "mean": (0.0,), "std": (1.0,), **settings})

    def loader(**settings):
        return as_batches(DataLoader(TensorDataset(X, Y), **{"batch_size": 4, **settings}))

    changed = X.clone()
    changed[9] += 1
    different = [
        TensorBatches(X, Y),
        TensorBatches(X, Y, batch_size=4),
        TensorBatches(X, Y, seed=1),
        TensorBatches(changed, Y),
        TensorBatches(X.double(), Y),
        TensorBatches(X[:, 0], Y),
        TensorBatches(X, Y.flip(0)),
        TensorBatches(X, Y, X[:, 0]),
        images(),
        images(seed=1),
        images(augment=True),
        images(shuffle=False),
        images(std=(2.0,)),
        loader(),
        loader(batch_size=5),
    ]
    assert len({data_fingerprint(data) for data in different}) == len(different)
    assert data_fingerprint(TensorBatches(X.clone(), Y.clone())) == data_fingerprint(different[0])
    assert data_fingerprint(images()) == data_fingerprint(images())


def test_loader_weights_are_kept():
    loader = DataLoader(TensorDataset(X, Y, X[:, 0] + 1), batch_size=4, shuffle=True)
    for batch in as_batches(loader).one_pass(0):
        assert torch.equal(batch.weight, X[batch.index, 0] + 1)


def test_loader_settings_are_kept():
    def started(worker):
        return None

    settings = {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 3, "worker_init_fn": started}
    inside = as_batches(DataLoader(TensorDataset(X, Y), batch_size=4, **settings)).indexed
    assert {name: getattr(inside, name) for name in settings} == settings


def test_a_loader_without_batches_is_an_error_and_not_an_endless_loop():
    loader = DataLoader(TensorDataset(X, Y), batch_size=128, drop_last=True)
    with pytest.raises(DataError, match="got no batch"):
        next(Endless(as_batches(loader)))


def test_a_third_part_is_always_the_weight():
    assert as_batch((X, Y)).index is None
    assert as_batch([X, Y, X[:, 0]]).index is None
    assert torch.equal(as_batch([X, Y, X[:, 0]]).weight, X[:, 0])
    (batch,) = as_batches((X.numpy(), Y.numpy(), X[:, 0].numpy() + 1)).one_pass(0)
    assert torch.equal(batch.weight, X[:, 0] + 1)


def test_what_is_a_batch_already_stays():
    batch = Batch(X, Y)
    assert as_batch(batch) is batch
    own = TensorBatches(X, Y)
    assert as_batches(own) is own


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X[0], Y[0])])


@pytest.mark.parametrize(
    ("call", "error", "wording"),
    [
        (lambda: as_batch(X), ConfigError, "got Tensor"),
        (lambda: as_batches([1, 2]), ConfigError, "got list"),
        (lambda: as_batches(DataLoader(Stream())), ConfigError, "map-style"),
        (lambda: TensorBatches(X, Y[:4]), DataError, "x has 10, y has 4"),
        (lambda: TensorBatches(X[:0], Y[:0]), DataError, "at least one row"),
        (lambda: TensorBatches(X, Y, batch_size=0), ConfigError, "batch_size must be"),
        (lambda: TensorBatches(X, X[:, 0]), DataError, "class codes .* got float32"),
        (lambda: TensorBatches(X, Y - 1), DataError, r"starting with \[-1, 0, 1\]"),
        (lambda: TensorBatches(X, Y, -X[:, 0]), DataError, "not negative"),
        (lambda: TensorBatches(X, Y, 0 * X[:, 0]), DataError, "not all zero"),
    ],
)
def test_bad_input(call, error, wording):
    with pytest.raises(error, match=wording):
        call()
