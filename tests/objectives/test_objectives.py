"""Contracts of every objective; values worked out elsewhere are in the tests of each file."""

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal import objectives
from selfcal.errors import DataError
from selfcal.objectives import DECE, MMCE, NLL, SECE, ConfidenceBCE, WeightedSum
from selfcal.training.interfaces import Objective
from tests.objectives.batches import batch, rows, value

FAMILY = [kind for kind in vars(objectives).values() if inspect.isclass(kind) and issubclass(kind, Objective)]
OBJECTIVES = [
    *(kind() for kind in FAMILY if kind is not WeightedSum),
    NLL() + 0.5 * DECE(),
    ConfidenceBCE(beta=20.0),
    MMCE(bandwidth=0.1),
    SECE(bandwidth=0.2, temperature=0.1),
    SECE(temperature=0),
    DECE(n_bins=4, bin_temperature=0.1, accuracy_temperature=0.2),
    DECE(accuracy_temperature=0),
]


@pytest.fixture(params=OBJECTIVES, ids=repr)
def objective(request):
    return request.param


def test_every_objective_is_exported():
    functions = {name for name, thing in vars(objectives).items() if inspect.isfunction(thing)}
    assert set(objectives.__all__) == {kind.__name__ for kind in FAMILY} | functions


def test_a_scalar_that_does_not_depend_on_the_order_of_the_rows(objective):
    logits, y = rows()
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(len(y), generator=generator, dtype=torch.float64)
    order = torch.randperm(len(y), generator=generator)
    for w in (None, weight):
        there = value(objective, logits, y, w)
        assert there.shape == ()
        back = value(objective, logits[order], y[order], None if w is None else w[order])
        torch.testing.assert_close(back, there)


def test_gradient(objective):
    logits, y = rows(n=7)
    weight = torch.rand(7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for w in (None, weight):
        assert torch.autograd.gradcheck(lambda z, w=w: value(objective, z, y, w), logits.requires_grad_())
    (grad,) = torch.autograd.grad(value(objective, logits, y), logits)
    assert grad.abs().max() > 1e-4


@settings(deadline=None, max_examples=25)
@given(counts=st.lists(st.integers(0, 3), min_size=8, max_size=8).filter(lambda c: sum(c) > 1))
def test_a_weight_of_k_is_the_row_k_times(counts):
    logits, y = rows(n=8)
    weight = torch.tensor(counts)
    logits[0] *= 9  # far from all other confidences, and of no weight at times
    repeated = torch.arange(8).repeat_interleave(weight)
    for objective in OBJECTIVES:
        weighted = value(objective, logits, y, weight.double())
        torch.testing.assert_close(weighted, value(objective, logits[repeated], y[repeated]))
        torch.testing.assert_close(value(objective, logits, y, weight.double() * 1e-6), weighted)


def assert_finite(objective, logits, y, weight=None):
    logits = logits.detach().requires_grad_()
    scalar = value(objective, logits, y, weight)
    (grad,) = torch.autograd.grad(scalar, logits)
    assert scalar.isfinite()
    assert grad.isfinite().all()
    return scalar, grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
class TestCorners:
    @pytest.mark.parametrize("size", [1e4, -1e4, 1.0, 0.0])
    @pytest.mark.parametrize("labels", [[0, 1, 2], [1, 2, 0], [0, 0, 1]], ids=["right", "wrong", "mixed"])
    def test_all_confidences_equal(self, objective, dtype, size, labels):
        assert_finite(objective, size * torch.eye(3, dtype=dtype), torch.tensor(labels))

    def test_certain_beside_undecided(self, objective, dtype):
        logits = torch.tensor([[1e4, -1e4, 0], [-1e4, 1e4, 1e4], [0, 0, 0], [1, 2, 3]], dtype=dtype)
        assert_finite(objective, logits, torch.tensor([0, 0, 1, 2]))

    def test_rows_without_weight_say_nothing(self, objective, dtype):
        logits, y = rows(n=5)
        logits = logits.to(dtype)
        _, grad = assert_finite(objective, logits, y, torch.tensor([1.0, 0, 2, 0, 1], dtype=dtype))
        assert grad[[1, 3]].abs().max() < 1e-30
        scalar, grad = assert_finite(objective, logits, y, torch.zeros(5, dtype=dtype))
        assert scalar == 0
        assert not grad.any()

    def test_one_row(self, objective, dtype):
        logits, y = torch.tensor([[1.0, 0.5, 0]], dtype=dtype), torch.tensor([0])
        if isinstance(objective, MMCE):
            with pytest.raises(DataError, match=r"at least two in a batch; got 1\. Use a larger batch"):
                value(objective, logits, y)
        else:
            assert_finite(objective, logits, y)


def test_single_precision_is_kept_and_agrees(objective):
    logits, y = rows()
    single = value(objective, logits.float(), y)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), value(objective, logits, y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("label", [3, -1, -100])  # the last is what torch's own cross-entropy skips
def test_a_label_without_a_logit_is_an_error(objective, label):
    expected = rf"class codes from 0 to 2, .* row 1 of the batch is {label} \(1 such row\)\. Drop these rows"
    with pytest.raises(DataError, match=expected):
        objective(*batch(torch.zeros(3, 3), torch.tensor([0, label, 1])))


def test_reads_as_it_is_written(objective):
    again = eval(repr(objective), vars(objectives))
    assert again == objective
    assert repr(again) == repr(objective)
    assert hash(again) == hash(objective)
