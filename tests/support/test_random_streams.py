import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from selfcal import models, transforms
from selfcal._support.random_streams import (
    Dropout,
    RandomStream,
    draws_globally,
    redirected,
    seeded,
    stream_in_use,
)
from selfcal.outer import InputNoise

CPU = torch.device("cpu")
X = torch.linspace(-1, 1, 40).view(2, 20)
DRAWS = {
    "rand": lambda: torch.rand(3),
    "out": lambda: torch.rand(3, out=torch.empty(3)),
    "randn": lambda: torch.randn(3),
    "randperm": lambda: torch.randperm(9),
    "randint": lambda: torch.randint(9, (20,)),
    "randint from": lambda: torch.randint(3, 9, (20,)),
    "rand_like": lambda: torch.rand_like(X),
    "randn_like": lambda: torch.randn_like(X),
    "randint_like": lambda: torch.randint_like(X, 9),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "normal of tensors": lambda: torch.normal(X, X.abs()),
    "uniform_": lambda: torch.empty(3).uniform_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 5),
    "poisson": lambda: torch.poisson(torch.ones(9)),
    "beta": lambda: torch.distributions.Beta(1.0, 1.0).sample(),
    "categorical": lambda: torch.distributions.Categorical(torch.ones(99)).sample(),
    "dropout": lambda: F.dropout(X, 0.3),
    "alpha_dropout": lambda: F.alpha_dropout(X, 0.3, training=True),
    "rrelu": lambda: F.rrelu(X, training=True),
    "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.3),
    "lstm": lambda: nn.LSTM(20, 5, 2, dropout=0.3)(X[None])[0],
    "linear": lambda: nn.Linear(3, 4).weight,
    "convolution": lambda: nn.Conv2d(3, 4, 3).weight,
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(4, 4)),
    "pooling": lambda: nn.FractionalMaxPool2d(2, output_size=2)(torch.randn(1, 1, 8, 8)),
    "own dropout": lambda: Dropout(0.3)(X),
    "own network": lambda: next(models.tabular(2, 3).parameters()),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_what_is_drawn_is_what_the_global_stream_would_give(draw):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = draw()
    before = torch.get_rng_state()
    with seeded(5):
        assert torch.equal(draw(), expected)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("draw", [DRAWS["rand"], DRAWS["own dropout"]], ids=["torch", "own"])
def test_without_a_stream_in_use_the_global_one_is_used(draw):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = draw()
        torch.manual_seed(5)
        with redirected():
            assert torch.equal(draw(), expected)


def test_a_generator_that_is_named_is_respected():
    expected = torch.rand(3, generator=torch.Generator().manual_seed(1))
    with seeded(5):
        assert torch.equal(torch.rand(3, generator=torch.Generator().manual_seed(1)), expected)


@pytest.mark.parametrize("stream", [RandomStream(CPU), RandomStream(CPU, seed=1)], ids=["global", "own"])
def test_marks_and_restored_draws(stream):
    with torch.random.fork_rng(), stream.in_use(), redirected():
        rewind = stream.mark()
        first = torch.rand(3)
        with stream.restored():
            torch.rand(7)
        second = torch.rand(3)
        rewind()
        assert torch.equal(torch.rand(6), torch.cat([first, second]))


def test_streams_nest_and_belong_to_a_thread():
    outside, seen = RandomStream(CPU, seed=1), []
    with outside.in_use():
        with seeded(2):
            assert stream_in_use(CPU) is not outside
            thread = threading.Thread(target=lambda: seen.append(stream_in_use(CPU)))
            thread.start()
            thread.join()
        assert stream_in_use(CPU) is outside
    assert seen[0] is not outside


@pytest.mark.parametrize("p", [0.0, 0.2, 0.9])
def test_dropout_is_that_of_torch(p):
    own, theirs = Dropout(p), nn.Dropout(p)
    x = X.double().requires_grad_()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        a = own(x)
        torch.manual_seed(0)
        b = theirs(x)
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), x)[0] for out in (a, b)))
    assert own.eval()(x) is x
    assert repr(own) == repr(theirs)


class Foreign(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (models.tabular(2, 3), False),
        (models.resnet18(width=2), False),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), False),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout1d(0.1)), True),
        (nn.GRU(2, 2), True),
        (Foreign(), True),
        (transforms.Mixup(), False),
        (InputNoise(), False),
        (None, False),
        (object(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_who_may_draw_from_the_global_stream(part, expected):
    assert draws_globally(part) is expected


def test_redirecting_does_not_make_torch_import_its_compiler():
    code = (
        "import sys, torch; from selfcal._support.random_streams import seeded\n"
        "with seeded(0): torch.rand(2)\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
