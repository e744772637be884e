import pytest
import torch

from selfcal import BilevelStep, recipes
from selfcal.errors import DataError
from selfcal.optimizers import SGD
from selfcal.outer import WeightNet
from selfcal.training.types import Batch, Output, Sizes

LIKE = torch.zeros((), dtype=torch.float64)
GENERATOR = torch.Generator().manual_seed(0)
OUTPUT = Output(4 * torch.randn(30, 3, generator=GENERATOR, dtype=torch.float64))
Y = torch.randint(3, (30,), generator=GENERATOR)
ROWS = Batch(torch.zeros(30, 1), Y)


def some_params(net, seed=0):
    generator = torch.Generator().manual_seed(seed)
    start = net.init(Sizes(30), LIKE)
    return {name: v + torch.randn(v.shape, generator=generator, dtype=v.dtype) for name, v in start.items()}


@pytest.mark.parametrize("seed", range(3))
def test_weights_lie_between_zero_and_two_or_are_one_on_average(seed):
    net = WeightNet(normalize=False)
    params = some_params(net, seed)
    weight = net(params, OUTPUT, ROWS)["weight"]
    assert ((weight > 0) & (weight < 2)).all()
    assert weight.std() > 0
    even = WeightNet()(params, OUTPUT, ROWS)["weight"]
    torch.testing.assert_close(even, weight / weight.mean())


def test_rows_of_weight_zero_are_left_out_of_the_mean():
    net, counted = WeightNet(), torch.arange(30).double() % 2
    weight = net(some_params(net), OUTPUT, Batch(ROWS.x, Y, weight=counted))["weight"]
    assert (weight * counted).sum().item() == pytest.approx(15)


def test_the_formula():
    net = WeightNet(hidden=2, normalize=False)
    params = some_params(net)
    probs = OUTPUT.logits.softmax(dim=1)
    for row in range(5):
        own = probs[row, Y[row]]
        other = max(float(probs[row, j]) for j in range(3) if j != Y[row])
        seen = torch.tensor([torch.log1p(-own.log()), own - other, probs[row].max()]).double()
        hidden = torch.tanh(params["first"].T @ seen + params["first_bias"])
        expected = 2 / (1 + torch.exp(-(hidden @ params["last"] + params["bias"])))
        assert net(params, OUTPUT, ROWS)["weight"][row].item() == pytest.approx(float(expected), rel=1e-6)


def test_no_gradient_flows_through_a_weight_into_the_network():
    net, logits = WeightNet(), OUTPUT.logits.clone().requires_grad_()
    params = {name: v.requires_grad_() for name, v in some_params(net).items()}
    weight = net(params, Output(logits), ROWS)["weight"]
    weight.square().sum().backward()
    assert logits.grad is None
    assert all((v.grad != 0).any() for v in params.values())


def test_it_uses_the_logits_passed_as_data():
    net = WeightNet()
    params = some_params(net)
    shown = Output(torch.zeros(30, 3).double(), seen=OUTPUT.logits)
    assert torch.equal(net(params, shown, ROWS)["weight"], net(params, OUTPUT, ROWS)["weight"])


def test_extreme_logits_give_finite_weights_and_gradients():
    net = WeightNet()
    params = {name: v.requires_grad_() for name, v in some_params(net).items()}
    extreme = Output(torch.tensor([[1e4, 0.0], [-1e4, 0.0], [0.0, 0.0]]).double())
    weight = net(params, extreme, Batch(torch.zeros(3, 1), torch.tensor([0, 0, 1])))["weight"]
    weight.square().sum().backward()
    assert weight.isfinite().all()
    assert all(v.grad.isfinite().all() for v in params.values())


def test_a_label_without_a_logit_is_one_clear_error():
    recipe = recipes.crossfit(learn="weights").candidates[0].recipe
    step = BilevelStep(torch.nn.Linear(1, 2), SGD(lr=0.1), recipe, n_train=3)
    with pytest.raises(DataError, match="class codes below the number of logits, 2; got 2"):
        step(Batch(torch.zeros(3, 1), torch.tensor([0, 1, 2])))
