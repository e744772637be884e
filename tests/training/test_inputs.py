"""Networks with several inputs and outputs with `logits`, in every entry point."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from selfcal import BilevelStep, CalibratedModel, Recipe, recipes, train
from selfcal.errors import ConfigError, DataError
from selfcal.hypergradients import OneStep, Unrolled
from selfcal.optimizers import SGD, Adam

X = torch.randn(150, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 2] > 0).long()
PARTS = [slice(0, 90), slice(90, 120), slice(120, 150)]


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def fair():
    """A network that is often right, but not always."""
    module = nn.Linear(4, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]]))
    return module


class Named(nn.Module):
    """In the manner of Hugging Face: keywords in, an object with `logits` out."""

    def __init__(self, output=SimpleNamespace, inside=layers):
        super().__init__()
        self.layers, self.output = inside(), output

    def forward(self, first, second):
        return self.output(logits=self.layers(torch.cat([first, second], dim=1)))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = layers()

    def forward(self, first, second):
        return self.layers(torch.cat([first, second], dim=1))


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows["labels"])

    def __getitem__(self, i):
        return {name: value[i] for name, value in self.rows.items()}


def as_dict(part):
    return {"first": X[part, :2], "second": X[part, 2:], "labels": Y[part]}


def as_pair(part):
    return (X[part, :2], X[part, 2:]), Y[part]


def loader(part):
    return DataLoader(Rows(as_dict(part)), batch_size=16)


def loader_of_pairs(part):
    (first, second), y = as_pair(part)
    rows = list(zip(zip(first, second, strict=True), y, strict=True))
    return DataLoader(rows, batch_size=16)


def trained(module, parts, recipe=None, **settings):
    options = {"optimizer": Adam(lr=0.05), "max_steps": 30, **settings}
    return train(module, *parts, recipe=recipe or recipes.bo4sc(inner_steps=3), **options)


def weights(result):
    return torch.cat([value.flatten() for value in result.module.state_dict().values()])


@pytest.mark.parametrize(
    ("module", "form", "batch_size"),
    [
        (Named, as_dict, 16),
        (lambda: Named(output=dict), as_dict, None),
        (Pair, as_pair, 16),
        (Pair, lambda part: ((X[part, :2].numpy(), X[part, 2:].numpy()), Y[part].numpy()), None),
        (Pair, as_dict, None),
    ],
    ids=["object", "dictionary", "pair", "arrays", "keywords"],
)
@pytest.mark.parametrize("hypergradient", [OneStep(), OneStep("forward"), Unrolled()], ids=repr)
def test_several_inputs_train_as_one_tensor_does(module, form, batch_size, hypergradient):
    recipe = recipes.bo4sc(inner_steps=3, hypergradient=hypergradient)
    whole = trained(layers(), [(X[p], Y[p]) for p in PARTS], recipe, batch_size=batch_size)
    result = trained(module(), [form(part) for part in PARTS], recipe, batch_size=batch_size)
    torch.testing.assert_close(weights(result), weights(whole), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("module", "form"), [(Named, loader), (Pair, loader_of_pairs)])
def test_loaders_of_several_inputs(module, form):
    plain = [DataLoader(TensorDataset(X[p], Y[p]), batch_size=16) for p in PARTS]
    result = trained(module(), [form(part) for part in PARTS], clip_norm=0.3)
    torch.testing.assert_close(
        weights(result), weights(trained(layers(), plain, clip_norm=0.3)), rtol=1e-4, atol=1e-5
    )


def test_the_methods_that_read_the_head_take_them_too():
    result = trained(Named(), [as_dict(part) for part in PARTS], recipes.gamma_net_sece())
    assert np.isfinite(result.history.outer_loss).all()


def test_methods_that_change_the_input_say_what_they_need():
    with pytest.raises(ConfigError, match=r"Mixup needs a network with one tensor.*got first, second"):
        trained(Named(), [as_dict(part) for part in PARTS], recipes.mixup())


def test_a_dictionary_without_labels_names_the_entry():
    rows = as_dict(PARTS[0])
    rows["target"] = rows.pop("labels")
    with pytest.raises(ConfigError, match=r'labels as "labels"; got first, second, target'):
        trained(Named(), [rows], recipes.standard())


@pytest.mark.parametrize("text", [["a", "b"], "a", {"x": ["a"]}])
def test_input_that_is_no_tensor(text):
    with pytest.raises(ConfigError, match="must be a tensor or an array"):
        BilevelStep(layers(), SGD(lr=0.1), recipes.standard(), n_train=2)((text, Y[:2]))


@pytest.mark.parametrize(
    ("last", "named"),
    [
        (nn.Softmax(dim=1), r"output of softmax. Remove its last layer, Softmax\(dim=1\)"),
        (nn.LogSoftmax(dim=1), r"output of log_softmax. Remove its last layer, LogSoftmax"),
    ],
)
def test_a_network_that_ends_in_a_softmax_is_pointed_out(last, named):
    with pytest.warns(UserWarning, match=named):
        trained(nn.Sequential(layers(), last), [(X[p], Y[p]) for p in PARTS], max_steps=10)


def test_a_softmax_inside_a_function_is_seen_in_the_output():
    class Probabilities(Pair):
        def forward(self, first, second):
            return super().forward(first, second).softmax(dim=1)

    with pytest.warns(UserWarning, match="Probabilities returns looks like the output of softmax"):
        trained(Probabilities(), [as_pair(p) for p in PARTS], max_steps=10)
    with pytest.warns(UserWarning, match="Remove the softmax at its end"):
        CalibratedModel(nn.Sequential(fair(), nn.Softmax(dim=1))).fit(X, Y)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy])
def test_a_reduced_loss_is_refused_where_the_recipe_is_made(loss):
    with pytest.raises(ConfigError, match=r'one value per row.*reduction="none"'):
        Recipe(name="own", loss=loss)


def test_a_reduced_loss_is_refused_by_its_value():
    def loss(z, y):
        return F.cross_entropy(z, y)

    with pytest.raises(ConfigError, match=r'of shape \(90,\).* got shape \(\). Use reduction="none"'):
        trained(layers(), [(X[p], Y[p]) for p in PARTS], Recipe(name="own", loss=loss))


def test_a_loss_of_torch_that_is_not_reduced_works():
    recipe = Recipe(name="own", loss=nn.CrossEntropyLoss(reduction="none"))
    parts = [(X[p], Y[p]) for p in PARTS]
    expected = trained(layers(), parts, recipes.standard())
    torch.testing.assert_close(weights(trained(layers(), parts, recipe)), weights(expected))


def pieces(first, second, form):
    whole = TensorDataset(X, Y)
    return {
        "tensors": lambda: [(X[r], Y[r]) for r in (first, second)],
        "copies": lambda: [(X[r].clone(), Y[r].clone()) for r in (first, second)],
        "arrays": lambda: [(X.numpy()[r], Y.numpy()[r]) for r in (first, second)],
        "tensor sets": lambda: [DataLoader(TensorDataset(X[r], Y[r])) for r in (first, second)],
        "subsets": lambda: [
            DataLoader(torch.utils.data.Subset(whole, range(150)[r]), shuffle=True) for r in (first, second)
        ],
        "samplers": lambda: [
            DataLoader(whole, sampler=torch.utils.data.SubsetRandomSampler(range(150)[r]))
            for r in (first, second)
        ],
        "joined": lambda: [
            DataLoader(TensorDataset(X[r][:5], Y[r][:5]) + TensorDataset(X[r][5:], Y[r][5:]))
            for r in (first, second)
        ],
        "own sets": lambda: [
            DataLoader(torch.utils.data.Subset(OWN, range(150)[r])) for r in (first, second)
        ],
    }[form]()


OWN = Rows({"x": X, "labels": Y})
FORMS = ("tensors", "arrays", "tensor sets", "subsets", "samplers", "joined", "own sets")


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_two_parts_are_refused(form):
    one, other = pieces(slice(0, 60), slice(50, 100), form)
    with pytest.raises(DataError, match=r"train_data and selection_data .*disjoint.*got 10 rows in both"):
        train(layers(), one, None, other, recipe=recipes.standard(), optimizer=Adam())


@pytest.mark.parametrize("form", [*FORMS[:-1], "copies"])
def test_disjoint_parts_are_accepted_and_the_same_are_not(form):
    one, other = pieces(slice(0, 120, 2), slice(1, 121, 2), form)
    options = {"recipe": recipes.standard(), "optimizer": Adam(), "max_steps": 10}
    train(layers(), one, None, other, **options)
    same, again = pieces(slice(0, 60), slice(0, 60), form)
    with pytest.raises(DataError, match=r"got 60 rows in both. Split the data first"):
        train(layers(), same, None, again, **options)


def test_parts_of_a_table_with_few_different_rows_may_be_equal():
    x, y = torch.tensor([[1.0, 3.0], [2.0, 1.0]]).repeat(30, 1), torch.arange(60) % 2
    parts = [(x[rows], y[rows]) for rows in (slice(0, 20), slice(20, 40), slice(40, 60))]
    result = train(
        nn.Linear(2, 2), *parts, recipe=recipes.bo4sc(inner_steps=1), optimizer=Adam(), max_steps=2
    )
    assert result.n_steps == 2


@pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning")
def test_outer_and_selection_rows_may_be_shared_by_a_calibrator_alone():
    whole = TensorDataset(X, Y)
    one, other = (DataLoader(part, batch_size=25) for part in random_split(whole, [100, 50]))
    train(layers(), one, other, other, recipe=recipes.named("temperature"), optimizer=Adam(), max_steps=10)
    with pytest.raises(DataError, match="outer_data and selection_data"):
        train(layers(), one, other, other, recipe=recipes.bo4sc(), optimizer=Adam(), max_steps=10)


def test_training_in_a_lower_precision_trains_and_leaves_hypergradients_exact():
    parts = [(X[p], Y[p]) for p in PARTS]
    recipe = recipes.bo4sc(inner_steps=5)
    full, low = (trained(layers(), parts, recipe, max_steps=100, precision=p) for p in ("full", "bf16"))
    assert not torch.equal(weights(full), weights(low))
    assert low.history.selection_loss[-1] == pytest.approx(full.history.selection_loss[-1], abs=0.02)
    torch.testing.assert_close(low.outer_params["weight"], full.outer_params["weight"], atol=0.1, rtol=0)
    assert next(low.module.parameters()).dtype == torch.float32


def test_a_precision_that_would_change_nothing_is_refused():
    parts = [(X[p], Y[p]) for p in PARTS]
    with pytest.raises(ConfigError, match=r"would change nothing: Unrolled\(.* all 4 inner steps"):
        trained(layers(), parts, recipes.bo4sc(inner_steps=4, hypergradient=Unrolled()), precision="bf16")
    with pytest.raises(ConfigError, match=r"precision must be .*full.*bf16"):
        trained(layers(), parts, precision="fp16")


def test_device():
    class Moved(nn.Sequential):
        places = ()

        def to(self, device):
            self.places = (*self.places, device)
            return super().to(device)

    module = Moved(nn.Linear(4, 2))
    trained(module, [(X[p], Y[p]) for p in PARTS], device="cpu", max_steps=10)
    assert module.places == (torch.device("cpu"),)
    with pytest.raises(ConfigError, match=r"device must be one that this machine has.*got 'gpu'"):
        trained(module, [(X[p], Y[p]) for p in PARTS], device="gpu")


def test_epochs_and_steps_are_limits_together():
    rows = (X[:90], Y[:90])
    for limits, expected in [
        ({"max_epochs": 2}, 12),
        ({"max_epochs": 2, "max_steps": 5}, 5),
        ({"max_epochs": 1, "max_steps": 50}, 6),
    ]:
        settings = {"recipe": recipes.standard(), "optimizer": Adam(), "batch_size": 15}
        assert train(layers(), rows, **settings, **limits).n_steps == expected
    with pytest.raises(ConfigError, match="max_epochs must be"):
        train(layers(), rows, recipe=recipes.standard(), optimizer=Adam(), max_epochs=0)


def test_the_callback_sees_the_losses_and_may_stop():
    seen = []

    def callback(event):
        seen.append(event)
        return event.n_steps == 20

    parts = [(X[p], Y[p]) for p in PARTS]
    result = trained(layers(), parts, evaluate_every=4, callback=callback)
    assert (result.n_steps, result.status) == (20, "stopped by the callback")
    history = result.history
    assert [event.selection_loss for event in seen] == history.selection_loss.tolist()
    assert [event.inner_loss for event in seen] == history.inner_loss[3::4].tolist()
    assert seen[-1].outer_loss == history.outer_loss[-1]
    assert seen[-1].step.problem.module is result.module


@pytest.mark.parametrize(
    "rows",
    [
        lambda p: as_dict(p) | {"labels": Y[p]},
        loader,
    ],
    ids=["tensors", "loader"],
)
def test_calibrated_model_takes_what_training_takes(rows):
    module = Named(inside=fair)
    x = {name: value for name, value in as_dict(PARTS[2]).items() if name != "labels"}
    expected = CalibratedModel(module.layers).fit(X[PARTS[1]], Y[PARTS[1]]).predict_proba(X[PARTS[2]])
    given = rows(PARTS[1])
    if isinstance(given, DataLoader):
        model, asked = CalibratedModel(module).fit(given), loader(PARTS[2])
    else:
        model = CalibratedModel(module).fit(
            {n: v for n, v in given.items() if n != "labels"}, given["labels"]
        )
        asked = x
    found = model.predict_proba(asked)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(model.predict(asked), found.argmax(axis=1))


def test_predictions_do_not_depend_on_the_batches_of_a_loader():
    model = CalibratedModel(fair()).fit(DataLoader(TensorDataset(X[:90], Y[:90]), batch_size=7, shuffle=True))
    whole = model.predict_proba(X[90:])
    for size, rows in [(7, TensorDataset(X[90:])), (50, X[90:]), (13, TensorDataset(X[90:], Y[90:]))]:
        np.testing.assert_array_equal(model.predict_proba(DataLoader(rows, batch_size=size)), whole)


def test_calibrated_model_says_what_is_wrong():
    model = CalibratedModel(fair())
    labelled = DataLoader(TensorDataset(X, Y), batch_size=50)
    with pytest.raises(ConfigError, match="labels; got none"):
        model.fit(X)
    with pytest.raises(ConfigError, match="labels; got none"):
        model.fit(DataLoader(TensorDataset(X), batch_size=50))
    with pytest.raises(ConfigError, match="got y and a DataLoader with labels"):
        model.fit(labelled, Y)
    with pytest.raises(ConfigError, match=r"one that shuffles. Use shuffle=False"):
        model.fit(labelled).predict_proba(DataLoader(TensorDataset(X), shuffle=True))


def test_a_usual_network_gets_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(layers(), [(X[p], Y[p]) for p in PARTS], max_steps=10)
