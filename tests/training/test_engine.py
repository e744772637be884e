import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from selfcal import Batch, BilevelStep, Recipe, TensorBatches, hypergradients, recipes, train
from selfcal.calibrators import IsotonicConfidence
from selfcal.datasets import Blobs
from selfcal.ensembles.modules import ParallelNetworks
from selfcal.errors import ConfigError, DataError, TrainingError
from selfcal.hypergradients import FiniteDifference, OneStep, Unrolled
from selfcal.models import mlp
from selfcal.optimizers import SGD, Adam
from selfcal.training.engine import selection_losses
from selfcal.training.interfaces import Hypergradient
from selfcal.training.run import BestState
from selfcal.training.step import MAX_SKIPPED_IN_A_ROW


def blobs(n, seed):
    X, y = Blobs(std=1.7).sample(n, seed=seed)
    return torch.tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32), torch.from_numpy(y)


TRAIN, OUTER, SELECTION = blobs(120, 0), blobs(60, 1), blobs(60, 2)


def network(seed=0, **settings):
    torch.manual_seed(seed)
    return mlp(2, 5, hidden=(16,), **settings)


def fit(recipe, module=None, **settings):
    options = {"optimizer": Adam(lr=0.02), "max_steps": 60, **settings}
    return train(module or network(), TRAIN, OUTER, SELECTION, recipe=recipe, **options)


def test_plain_training_equals_a_hand_written_loop():
    ours, theirs = network(), network()
    result = train(ours, TRAIN, recipe=recipes.standard(), optimizer=Adam(lr=0.02), max_steps=50)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(theirs(TRAIN[0]), TRAIN[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(result.history.inner_loss, losses, rtol=1e-4)
    for ours_p, theirs_p in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours_p, theirs_p, rtol=1e-3, atol=1e-4)


def test_outer_steps_come_after_every_t_inner_steps():
    result = fit(recipes.bo4sc(inner_steps=7, outer_lr=0.05), max_steps=30)
    assert result.history.outer_step.tolist() == [7, 14, 21, 28]
    assert result.history.snapshot_step.tolist() == [0, 7, 14, 21, 28]
    assert result.history.snapshots["weight"].shape == (5, 120)
    assert (result.history.snapshots["weight"][0] == 0.5).all()


@pytest.mark.parametrize("hypergradient", [OneStep(), Unrolled(), Unrolled(truncate=2)], ids=repr)
@pytest.mark.parametrize("batch_size", [None, 32])
def test_weights_move_and_stay_within_bounds(hypergradient, batch_size):
    recipe = recipes.bo4sc(inner_steps=5, outer_lr=0.2, hypergradient=hypergradient)
    result = fit(recipe, batch_size=batch_size, patience=None)
    weights = result.history.snapshots["weight"]
    assert weights.std() > 0
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert np.isfinite(result.history.outer_loss).all()


@pytest.mark.parametrize("batch_size", [None, 60, 20])
def test_outer_step_moves_the_rows_it_saw_by_the_same_distance_at_any_batch_size(batch_size):
    recipe = recipes.bo4sc(inner_steps=1, outer_lr=0.01)
    result = train(
        network(), TRAIN, OUTER, recipe=recipe, optimizer=Adam(lr=0.02), max_steps=1, batch_size=batch_size
    )
    moved = (result.outer_params["weight"] - 0.5).abs()
    assert (moved > 0).sum() <= (batch_size or 120)
    assert moved[moved > 0].mean().item() == pytest.approx(0.01, rel=1e-3)


def test_outer_steps_lower_the_outer_loss():
    """From one start, a small step down the exact hypergradient must beat a small step up."""
    outer_losses = {}
    for sign in (+1, -1):
        recipe = recipes.bo4sc(inner_steps=10, outer_lr=0.02, hypergradient=_Signed(sign))
        step = BilevelStep(network(), Adam(lr=0.02), recipe, n_train=120)
        rows = Batch(*TRAIN, torch.arange(120))
        reports = [step(rows, OUTER) for _ in range(100)]
        outer_losses[sign] = [r.outer_loss for r in reports if r.outer_loss is not None]
    assert outer_losses[+1][0] == outer_losses[-1][0]
    assert outer_losses[+1][-1] < outer_losses[-1][-1]


@dataclasses.dataclass(frozen=True)
class _Signed(Hypergradient):
    sign: int
    horizon = None

    def __call__(self, problem, trajectory, outer, batch):
        value, grads = Unrolled()(problem, trajectory, outer, batch)
        return value, {name: self.sign * grad for name, grad in grads.items()}


@pytest.mark.parametrize("name", ["standard", "bo4sc"])
def test_same_seed_is_bit_identical(name):
    results = [fit(recipes.named(name), network(dropout=0.3), batch_size=32, seed=seed) for seed in (3, 3, 4)]
    first, again, other = (torch.cat([p.reshape(-1) for p in r.module.parameters()]) for r in results)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    np.testing.assert_array_equal(results[0].history.inner_loss, results[1].history.inner_loss)


def test_global_random_stream_is_left_alone():
    before = torch.get_rng_state()
    module = network(dropout=0.5)
    torch.set_rng_state(before)
    fit(recipes.bo4sc(), module)
    assert torch.equal(torch.get_rng_state(), before)


def test_best_state_is_restored():
    result = fit(recipes.bo4sc(), max_steps=600, patience=5, optimizer=Adam(lr=0.05))
    history = result.history
    assert result.status == "stopped early"
    assert result.n_steps < 600
    best = int(np.argmin(history.selection_loss))
    assert result.best_step == history.selection_step[best] < result.n_steps
    assert selection_losses(result.module, TensorBatches(*SELECTION))[0] == pytest.approx(
        history.selection_loss[best], rel=1e-6
    )
    at_best = np.flatnonzero(history.snapshot_step <= result.best_step)[-1]
    np.testing.assert_array_equal(result.outer_params["weight"].numpy(), history.snapshots["weight"][at_best])
    assert len(history.selection_loss) - 1 - best == 5


class TestRefinement:
    """Selection by the log loss after the best temperature."""

    @staticmethod
    def losses(scale, **settings):
        """Of two networks that know the classes' centres, on weighted rows."""
        module = ParallelNetworks([nn.Linear(2, 5), nn.Linear(2, 5)])
        for member, noise in zip(module.members, (0.0, 0.3), strict=True):
            centres = torch.stack([TRAIN[0][TRAIN[1] == code].mean(dim=0) for code in range(5)])
            member.weight.data = scale * (centres + noise)
            member.bias.data = -scale * centres.square().sum(dim=1) / 2
        return selection_losses(module, TensorBatches(*SELECTION, 1 + torch.arange(60.0)), **settings)

    def test_it_is_the_lowest_over_all_temperatures(self):
        scales = np.geomspace(1e-3, 1e3, 2001)
        tried = np.array([self.losses(scale) for scale in scales])
        np.testing.assert_allclose(self.losses(1.0, refine=True), tried.min(axis=0), rtol=1e-4)

    def test_it_does_not_depend_on_the_confidence(self):
        np.testing.assert_allclose(self.losses(1.0, refine=True), self.losses(30.0, refine=True), rtol=1e-6)

    def test_logits_that_are_not_finite_have_no_temperature(self):
        assert not np.isfinite(self.losses(float("inf"), refine=True)).any()

    def test_the_state_of_the_lowest_one_is_chosen(self):
        settings = {"optimizer": Adam(lr=0.05), "max_steps": 300, "patience": None}
        plain, refined = (fit(recipes.standard(), refine=refine, **settings) for refine in (False, True))
        losses = refined.history.selection_loss
        assert (losses <= plain.history.selection_loss).all()
        assert losses[-1] < 0.99 * plain.history.selection_loss[-1]
        assert refined.best_step == refined.history.selection_step[losses.argmin()]


def test_best_state_includes_batch_norm_statistics():
    module = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5))
    result = fit(recipes.standard(), module, max_steps=400, patience=3, optimizer=Adam(lr=0.1))
    again = selection_losses(result.module, TensorBatches(*SELECTION))[0]
    assert again == pytest.approx(result.history.selection_loss.min(), rel=1e-6)


@pytest.mark.parametrize("name", hypergradients.__all__)
def test_look_ahead_passes_change_nothing_but_the_outer_parameters(name):
    """With an outer step of no length, training must go as without an outer level: statistics, masks and all."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 5))
    plain = copy.deepcopy(module)
    far_away = (OUTER[0] + 100, OUTER[1])
    still = dataclasses.replace(
        recipes.bo4sc(inner_steps=2, hypergradient=getattr(hypergradients, name)()),
        outer_optimizer=SGD(lr=1e-30),
    )
    options = {"optimizer": SGD(lr=0.1, momentum=0.9), "max_steps": 10, "seed": 5}
    train(module, TRAIN, far_away, recipe=still, **options)
    train(plain, (*TRAIN, torch.full((120,), 0.5)), recipe=recipes.standard(), **options)
    assert all(p.grad is None for p in module.parameters())
    for ours, theirs in zip(module.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["OneStep", "Unrolled", "FiniteDifference"])
def test_dead_units_and_huge_logits_give_finite_hypergradients(name):
    """Dead units have a second moment of zero; huge logits saturate the confidence."""
    module = network()
    with torch.no_grad():
        module[0].bias[:8] = -1e6
        module[2].weight *= 1e4
    recipe = recipes.bo4sc(inner_steps=3, hypergradient=getattr(hypergradients, name)())
    result = fit(recipe, module, max_steps=30)
    assert result.history.skipped == 0
    assert torch.isfinite(result.outer_params["weight"]).all()


def test_forward_mode_equals_the_exact_hypergradient_through_batch_norm_and_convolution():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Unflatten(1, (1, 4)),
        nn.Conv1d(1, 3, 3),
        nn.BatchNorm1d(3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(6, 2),
    ).double()
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.arange(30) % 2
    found = {}
    for strategy in (Unrolled(), OneStep(), OneStep(tangent="forward"), FiniteDifference()):
        seen = _Seen(strategy)
        recipe = recipes.bo4sc(inner_steps=1, hypergradient=seen)
        step = BilevelStep(copy.deepcopy(module), SGD(lr=0.1), recipe, n_train=20)
        step(Batch(x[:20], y[:20], torch.arange(20)), (x[20:], y[20:]))
        found[repr(strategy)] = seen.last["weight"]
    exact = found[repr(Unrolled())]
    assert exact.abs().max() > 0
    for grad in found.values():
        torch.testing.assert_close(grad, exact, rtol=1e-5, atol=1e-9)


class _Seen(Hypergradient):
    """Passes through to another strategy and keeps what it gave."""

    def __init__(self, strategy):
        self.strategy, self.horizon, self.records = strategy, strategy.horizon, strategy.records

    def __call__(self, problem, trajectory, outer, batch):
        value, self.last = self.strategy(problem, trajectory, outer, batch)
        return value, self.last


class _NoForwardRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_layer_without_a_forward_rule():
    class Odd(nn.Linear):
        def forward(self, x):
            return _NoForwardRule.apply(super().forward(x))

    def run(strategy):
        recipe = recipes.bo4sc(inner_steps=1, hypergradient=strategy)
        step = BilevelStep(Odd(2, 5), SGD(lr=0.1), recipe, n_train=120)
        step(Batch(*TRAIN, torch.arange(120)), OUTER)

    run(OneStep())
    with pytest.raises(ConfigError, match=r'no forward-mode rule.*OneStep\(tangent="difference"\)'):
        run(OneStep(tangent="forward"))


@pytest.mark.parametrize(
    ("strategy", "steps"),
    [(Unrolled(), 3), (Unrolled(recompute=True), 3), (OneStep(), 1), (FiniteDifference(), 1)],
)
def test_dropout_masks_are_replayed(strategy, steps):
    """With the masks replayed, the hypergradient through the steps equals a finite difference of them."""
    module = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 5)).double()
    x, y = TRAIN[0].double(), TRAIN[1]
    seen = _Seen(strategy)
    recipe = recipes.bo4sc(inner_steps=steps, hypergradient=seen)

    def outer_loss(bump):
        step = BilevelStep(copy.deepcopy(module), SGD(lr=0.5), recipe, n_train=120)
        step.load_state({**step.state(), "outer": {"weight": step.outer_params["weight"] + bump}})
        torch.manual_seed(7)
        reports = [step(Batch(x, y, torch.arange(120)), (OUTER[0].double(), OUTER[1])) for _ in range(steps)]
        return reports[-1].outer_loss

    outer_loss(0.0)
    grad = seen.last["weight"]
    for i in (0, 50):
        bump = torch.zeros(120, dtype=torch.float64)
        bump[i] = 1e-4
        expected = (outer_loss(bump) - outer_loss(-bump)) / 2e-4
        assert grad[i].item() == pytest.approx(expected, rel=1e-4)


def test_own_loop_keeps_the_module_up_to_date():
    module = network()
    step = BilevelStep(module, Adam(lr=0.05), recipes.bo4sc(inner_steps=4), n_train=120)
    before = module[0].weight.clone()
    due = []
    for _ in range(8):
        due.append(step.outer_due)
        step(Batch(*TRAIN, torch.arange(120)), OUTER if step.outer_due else None)
    assert due == [False, False, False, True] * 2
    assert not torch.equal(module[0].weight, before)
    torch.testing.assert_close(step.problem.read(), step.state()["theta"])


def test_parameters_may_be_changed_between_calls():
    """What a user clips, loads or averages is where the next step starts from."""
    module = network()
    step = BilevelStep(module, SGD(lr=0.1), recipes.bo4sc(inner_steps=2), n_train=120)
    rows = Batch(*TRAIN, torch.arange(120))
    step(rows)
    with torch.no_grad():
        module[0].weight.zero_()
        module[0].bias.fill_(0.3)
    expected = copy.deepcopy(module)
    loss = 0.5 * nn.functional.cross_entropy(expected(TRAIN[0]), TRAIN[1])
    loss.backward()
    step(rows, OUTER)
    for ours, before in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.detach(), before.detach() - 0.1 * before.grad)


def test_frozen_batch_norm_stays_frozen():
    module = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))
    step = BilevelStep(module, SGD(lr=0.1), recipes.bo4sc(inner_steps=1), n_train=120)
    module[1].eval()
    for _ in range(3):
        step(Batch(*TRAIN, torch.arange(120)), OUTER)
    assert [part.training for part in module] == [True, False, True, True]
    assert (module[1].running_mean == 0).all()


def test_calibrator_is_fitted_on_the_outer_data():
    result = fit(recipes.isoreg())
    logits = result.module(OUTER[0]).detach().numpy()
    expected = IsotonicConfidence().fit(logits, OUTER[1].numpy())
    np.testing.assert_allclose(result.calibrator.confidence(logits), expected.confidence(logits))
    assert fit(recipes.standard()).calibrator is None


def test_selection_data_is_evaluated_in_batches():
    sizes = set()

    class Watched(nn.Linear):
        def forward(self, x):
            sizes.add(len(x))
            return super().forward(x)

    fit(recipes.standard(), Watched(2, 5), batch_size=10)
    assert max(sizes) == 10


def test_reused_data_gives_the_same_result():
    data = TensorBatches(*TRAIN, batch_size=32)
    weights = []
    for _ in range(2):
        module = network()
        train(module, data, recipe=recipes.standard(), optimizer=Adam(), max_steps=10)
        weights.append(module[0].weight)
    assert torch.equal(*weights)


def test_no_room_for_an_outer_step_is_pointed_out():
    with pytest.warns(UserWarning, match="No outer step will be taken: max_steps=5 is below inner_steps=10"):
        fit(recipes.bo4sc(), max_steps=5)


def test_parameters_that_end_up_infinite_are_an_error():
    steep = Recipe(name="steep", loss=lambda z, y: 1e6 * nn.functional.cross_entropy(z, y, reduction="none"))
    with pytest.raises(TrainingError, match="Parameters became infinite"):
        train(network(), TRAIN, recipe=steep, optimizer=SGD(lr=3e38), max_steps=1)


@pytest.mark.parametrize("shuffle", [False, True])
def test_data_loaders_work_for_per_row_weights(shuffle):
    generator = torch.Generator().manual_seed(0)
    loaders = [
        DataLoader(TensorDataset(*part), batch_size=30, shuffle=shuffle, generator=generator)
        for part in (TRAIN, OUTER, SELECTION)
    ]
    result = train(
        network(), *loaders, recipe=recipes.bo4sc(outer_lr=0.1), optimizer=Adam(lr=0.02), max_steps=40
    )
    assert result.outer_params["weight"].shape == (120,)
    assert result.outer_params["weight"].std() > 0


def test_sample_weight_two_is_the_row_twice():
    weight = torch.ones(120)
    weight[:20] = 2
    twice = torch.cat([torch.arange(20), torch.arange(120)])
    options = {"recipe": recipes.standard(), "optimizer": SGD(lr=0.1), "max_steps": 20}
    weighted, repeated = network(), network()
    train(weighted, (*TRAIN, weight * 120 / weight.sum()), **options)
    train(repeated, (TRAIN[0][twice], TRAIN[1][twice]), **options)
    torch.testing.assert_close(weighted[0].weight, repeated[0].weight, rtol=1e-4, atol=1e-6)


class _Broken(Hypergradient):
    horizon = 1

    def __call__(self, problem, trajectory, outer, batch):
        return torch.tensor(1.0), {name: torch.full_like(v, math.nan) for name, v in outer.items()}


def test_non_finite_hypergradients_never_reach_the_weights():
    recipe = recipes.bo4sc(inner_steps=1, hypergradient=_Broken())
    result = fit(recipe, max_steps=MAX_SKIPPED_IN_A_ROW - 1)
    assert result.history.skipped == MAX_SKIPPED_IN_A_ROW - 1
    assert (result.outer_params["weight"] == 0.5).all()
    with pytest.raises(TrainingError, match=f"not finite {MAX_SKIPPED_IN_A_ROW} outer steps in a row"):
        fit(recipe, max_steps=MAX_SKIPPED_IN_A_ROW)


def test_diverging_training_stops_with_the_step_and_the_remedy():
    with pytest.raises(
        TrainingError, match=r"became (nan|inf) at step \d+ with SGD.*Lower the learning rate"
    ):
        fit(Recipe(name="odd", loss=lambda z, y: (z**4).sum(dim=1)), optimizer=SGD(lr=1e6))


def test_selection_data_that_never_gives_a_finite_loss_is_an_error():
    broken = (torch.full_like(SELECTION[0], math.nan), SELECTION[1])
    with pytest.raises(TrainingError, match="never finite in 20 steps"):
        train(network(), TRAIN, None, broken, recipe=recipes.standard(), optimizer=Adam(), max_steps=20)


@pytest.mark.parametrize(
    ("call", "error", "wording"),
    [
        (
            lambda: train(network(), TRAIN, recipe=recipes.bo4sc(), optimizer=Adam()),
            ConfigError,
            "needs outer_data",
        ),
        (
            lambda: train(network(), TRAIN, recipe=recipes.standard(), optimizer=torch.optim.SGD),
            ConfigError,
            "torch.optim works in place",
        ),
        (lambda: fit(recipes.standard(), max_steps=0), ConfigError, "max_steps must be"),
        (lambda: fit(recipes.standard(), evaluate_every=0), ConfigError, "evaluate_every must be"),
        (lambda: fit("bo4sc"), ConfigError, "recipe must be a Recipe.* got 'bo4sc'"),
        (
            lambda: train(nn.Linear(2, 3), TRAIN, recipe=recipes.standard(), optimizer=Adam()),
            DataError,
            "below the number of logits, 3; got 4",
        ),
        (lambda: fit(recipes.standard(), patience=0), ConfigError, "patience must be"),
        (lambda: fit(recipes.standard(), evaluate_every=-1), ConfigError, "evaluate_every must be"),
        (
            lambda: BilevelStep(network(), Adam(), recipes.bo4sc(inner_steps=1), n_train=120)(
                Batch(*TRAIN, torch.arange(120))
            ),
            ConfigError,
            "no outer batch was given",
        ),
        (
            lambda: BilevelStep(network(), Adam(), recipes.bo4sc(), n_train=120)(TRAIN),
            DataError,
            "needs the index of each training row",
        ),
    ],
)
def test_misuse(call, error, wording):
    with pytest.raises(error, match=wording):
        call()


def test_the_callback_is_called_at_every_evaluation_and_after_the_last_step():
    seen = []
    module = torch.nn.Linear(2, 2)
    data = (torch.randn(20, 2), torch.arange(20) % 2)
    train(
        module,
        data,
        recipe=recipes.standard(),
        optimizer=SGD(lr=0.1),
        max_steps=25,
        evaluate_every=10,
        callback=lambda event: seen.append(event.n_steps),
    )
    assert seen == [10, 20, 25]


def test_out_of_time_stops_in_the_middle_of_a_pass_and_keeps_the_best():
    result = fit(recipes.standard(), max_seconds=1e-9, evaluate_every=25)
    assert (result.status, result.n_steps, result.best_step) == ("out of time", 10, 10)
    assert len(result.history.selection_loss) == 1


def test_time_that_is_enough_changes_nothing():
    quick, plain = (fit(recipes.standard(), max_steps=20, max_seconds=limit) for limit in (1e9, math.inf))
    assert quick.status == plain.status == "ran to the end"
    assert all(
        torch.equal(a, b) for a, b in zip(quick.module.parameters(), plain.module.parameters(), strict=True)
    )


def test_a_run_that_has_ended_is_not_out_of_time():
    assert fit(recipes.standard(), max_steps=7, evaluate_every=7, max_seconds=1e-9).status == "ran to the end"


def test_the_best_state_survives_a_checkpoint():
    """The state of the lowest loss, and how long ago it was, come back as they were."""
    step = BilevelStep(ParallelNetworks([network(0), network(1)]), Adam(lr=0.1), recipes.bo4sc(), n_train=120)
    best = BestState(step)
    start = step.problem.read()
    best.consider(step, 1.0)
    step.problem.write(start + 1)
    best.consider(step, 0.5)
    step.problem.write(start + 2)
    best.consider(step, 0.6)
    again = BestState(step)
    again.load_state(best.state(), step.device)
    assert again.rounds_without_gain == best.rounds_without_gain == 1
    again.restore(step)
    assert torch.equal(step.problem.read(), start + 1)


def test_a_loss_that_was_never_finite_is_an_error():
    step = BilevelStep(network(0), Adam(lr=0.1), recipes.standard(), n_train=120)
    best = BestState(step)
    best.consider(step, math.nan)
    with pytest.raises(TrainingError, match="never finite"):
        best.restore(step)


@pytest.mark.parametrize(
    "recipe", [recipes.auto(), recipes.crossfit(), recipes.ensemble()], ids=lambda r: r.name
)
def test_a_method_of_several_networks_is_refused(recipe):
    data = torch.zeros(8, 2), torch.arange(8) % 2
    with pytest.raises(
        ConfigError,
        match=f"trains one network, .*; got Ensemble.name='{recipe.name}'.* go to SelfCalibratedClassifier",
    ):
        train(torch.nn.Linear(2, 2), data, recipe=recipe, optimizer=Adam(lr=0.1))
