"""Contracts of every per-row loss; values worked out elsewhere are in the tests of each file."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal import losses
from selfcal.errors import ConfigError

LOSSES = {name: loss for name, loss in vars(losses).items() if inspect.isfunction(loss)}
SETTINGS = [  # beside the defaults: corners, and what the random rows below would not reach
    partial(losses.focal, gamma=0.0),
    partial(losses.focal, gamma=0.3),
    partial(losses.focal, gamma=5.0),
    partial(losses.dual_focal, gamma=0.3),
    partial(losses.cpc, alpha=0.5, beta=2.0),
    partial(losses.huber_gap, delta=0.5),
    partial(losses.label_smoothing, smoothing=1.0),
    partial(losses.smoothed_focal, gamma=0.3, smoothing=0.2, temperature=0.7),
    partial(losses.margin_label_smoothing, alpha=2.0, margin=0.5),
    partial(losses.lp_norm, alpha=0.5, p=2.0),
    partial(losses.lp_norm, alpha=0.5, p=3.5),
    partial(losses.soft_ece, norm="l1"),
    partial(losses.soft_ece, n_bins=5, temperature=0.1),
    partial(losses.avuc, threshold=0.9),
    partial(losses.soft_avuc, temperature=0.2, threshold=0.8),
]
CONSTANT_FACTOR = (losses.bsce_gra,)
"""Their gradient is not that of the value, as a factor is a constant for it; tested with the loss."""


def name_of(loss):
    if not isinstance(loss, partial):
        return loss.__name__
    return "-".join([loss.func.__name__, *(f"{key}={value}" for key, value in loss.keywords.items())])


@pytest.fixture(params=[*LOSSES.values(), *SETTINGS], ids=name_of)
def loss(request):
    return request.param


def rows(n=6, k=3):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, k, dtype=torch.float64, generator=generator), torch.arange(n) % k


def test_every_loss_is_exported():
    assert set(losses.__all__) == {*LOSSES, "LossModule"}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=name_of)
def test_further_arguments_are_keywords(loss):
    """An outer model provides them by name."""
    first, second, *further = inspect.signature(loss).parameters.values()
    assert (first.name, second.name) == ("logits", "y")
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in further)


def test_one_value_per_row_in_the_rows_order(loss):
    logits, y = rows()
    values, order = loss(logits, y), torch.tensor([3, 1, 5, 0, 2, 4])
    assert values.shape == (6,)
    torch.testing.assert_close(loss(logits[order], y[order]), values[order])


@pytest.mark.parametrize(
    "loss", [loss for loss in (*LOSSES.values(), *SETTINGS) if loss not in CONSTANT_FACTOR], ids=name_of
)
def test_gradients_of_first_and_second_order(loss):
    logits, y = rows()
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, y), logits)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, y), logits)


@pytest.mark.parametrize(
    ("name", "keyword", "value"),
    [
        (name, keyword, value)
        for name, loss in LOSSES.items()
        for keyword, value in {"gamma": 0.7, "smoothing": 0.2, "alpha": 0.5, "beta": 0.5}.items()
        if keyword in inspect.signature(loss).parameters and loss not in CONSTANT_FACTOR
    ],
)
def test_hyperparameters_can_be_learned_row_by_row(name, keyword, value):
    logits, y = rows()
    hyper = torch.full((6,), value, dtype=torch.float64, requires_grad=True)
    inputs = (logits.requires_grad_(), hyper)
    assert torch.autograd.gradcheck(lambda z, h: LOSSES[name](z, y, **{keyword: h}), inputs)
    assert torch.autograd.gradgradcheck(lambda z, h: LOSSES[name](z, y, **{keyword: h}), inputs)
    torch.testing.assert_close(
        LOSSES[name](logits, y, **{keyword: hyper}), LOSSES[name](logits, y, **{keyword: value})
    )
    with pytest.raises(ConfigError, match=rf"{keyword} must be a number, or a tensor .* got shape \(6, 1\)"):
        LOSSES[name](logits, y, **{keyword: hyper[:, None]})
    with pytest.raises(ConfigError, match=rf"{keyword} must be a number in .*; got -1"):
        LOSSES[name](logits, y, **{keyword: -1})


def assert_finite_to_second_order(loss, logits, y):
    logits = logits.detach().requires_grad_()
    values = loss(logits, y)
    (grad,) = torch.autograd.grad(values.sum(), logits, create_graph=True)
    (second,) = torch.autograd.grad(
        grad, logits, torch.ones_like(grad), allow_unused=True, materialize_grads=True
    )
    assert values.isfinite().all()
    assert grad.isfinite().all()
    assert second.isfinite().all()


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@DTYPES
@pytest.mark.parametrize("size", [1e4, -1e4, 0.0])
@pytest.mark.parametrize("labels", [[0, 1, 2], [1, 2, 0], [0, 0, 1]], ids=str)
def test_extreme_logits_stay_finite(loss, size, labels, dtype):
    assert_finite_to_second_order(loss, size * torch.eye(3, dtype=dtype), torch.tensor(labels))


@DTYPES
@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-30, 1e-7, 1.0])
def test_extreme_probabilities_of_the_label_stay_finite(loss, p, dtype):
    with np.errstate(divide="ignore"):
        log_odds = np.clip(np.log(p) - np.log1p(-p), -1e4, 1e4)
    logits = torch.tensor([[log_odds, 0.0], [log_odds, 0.0], [0.0, log_odds]], dtype=dtype)
    assert_finite_to_second_order(loss, logits, torch.tensor([0, 0, 1]))


def test_single_precision_is_kept_and_agrees(loss):
    logits, y = rows()
    values = loss(logits.float(), y)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), loss(logits, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_without_a_logit_is_an_error(loss, label):
    logits, _ = rows(2)
    with pytest.raises(IndexError, match="out of bounds"):
        loss(logits, torch.tensor([0, label]))


def test_cross_entropy_by_hand():
    logits = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    value = losses.cross_entropy(logits, torch.tensor([0]))
    assert value.item() == pytest.approx(1.3132616875182228)


LOGITS = st.lists(st.floats(-30, 30), min_size=2, max_size=8).map(lambda z: torch.tensor([z]).double())


@settings(deadline=None)
@given(logits=LOGITS, t=st.floats(1, 20))
def test_a_lower_temperature_never_raises_the_loss_of_the_predicted_class(logits, t):
    y = logits.argmax(dim=1)
    assert losses.smoothed_focal(logits, y, temperature=1 / t) <= losses.cross_entropy(logits, y) + 1e-12


@settings(deadline=None)
@given(logits=LOGITS, gamma=st.floats(1, 10), label=st.integers(0, 7))
def test_focal_loss_bounds_entropy_regularisation_from_above(logits, gamma, label):
    y = torch.tensor([label % logits.shape[1]])
    regularised = losses.entropy_regularized(logits, y, alpha=gamma)
    assert losses.focal(logits, y, gamma=gamma) >= regularised - 1e-9


def test_the_inequality_its_proof_rests_on_turns_round_when_gamma_is_under_one():
    logits, y = torch.tensor([[-2.0, 9.0]], dtype=torch.float64), torch.tensor([0])
    gamma = 0.5
    p = torch.softmax(logits, dim=-1)[0, 0]
    bernoulli = (1 - gamma * p) * losses.cross_entropy(logits, y)
    assert losses.focal(logits, y, gamma=gamma) < bernoulli
