"""The image experiments at a size for a test, on images made here."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from selfcal.errors import ConfigError, DataError
from selfcal.experiments import _images, _tables, images, loss_functions, meta_regularization
from selfcal.experiments._tables import image_tables


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Two classes that a small network can tell apart, brighter and darker, on 28 x 28 noise."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)

    def rows(n):
        y = np.arange(n) % 10
        x = rng.normal(60, 40, size=(n, 28, 28)) + 120 * (y % 2)[:, None, None]
        return np.clip(x, 0, 255).astype(np.uint8), y

    (x_train, y_train), (x_test, y_test) = rows(200), rows(60)
    np.savez(folder / "fashion_mnist.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return folder


def tiny(paper, **changes):
    small = images.profile_of(paper, "small")
    networks = dict.fromkeys(small.networks, 2)
    return replace(small, networks=networks, rows=None, epochs=2, seeds=1, test_rows=60, **changes)


@pytest.fixture(scope="module")
def finished(data_dir, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    profile = tiny("meta-regularization", every=1)
    return images.reproduce("meta-regularization", profile, data_dir, out), out


@pytest.mark.slow
def test_every_method_of_the_table_has_a_row_and_every_column_a_number(finished):
    rows, out = finished
    methods = {*meta_regularization.OF_THE_PAPER, "temperature", "early_stopped"}
    assert {row["method"] for row in rows} == methods
    table = (out / "table.md").read_text()
    assert all(f"| {meta_regularization.METHODS[method]} |" in table for method in methods)
    assert "nan" not in table
    assert "NaN" not in (out / "results.json").read_text()
    assert len(list(out.glob("meta-*.png"))) == 4
    page = (out / "reports" / "resnet18.html").read_text()
    assert all(label in page for label in ("CE, early-stopped", "FL_γ-SECE", "Ankle boot"))


@pytest.fixture(scope="module")
def narrow(data_dir, tmp_path_factory):
    """The methods of the narrow profile at a small size."""
    out = tmp_path_factory.mktemp("narrow")
    profile = images.profile_of("meta-regularization", "narrow")
    size = {"networks": {"resnet8": 4}, "rows": None, "parts": (0.4, 0.4, 0.2), "test_rows": 60}
    small = replace(profile, **size, augment=False, epochs=3, seeds=1, curve_every=2)
    return images.reproduce("meta-regularization", small, data_dir, out), out, small


@pytest.mark.slow
def test_the_narrow_profile_has_the_fixed_gammas_and_the_best_of_them(narrow):
    rows, out, profile = narrow
    assert {row["run"] for row in rows} == set(profile.runs)
    assert "| Fixed γ, the best on validation rows |" in (out / "table.md").read_text()
    assert len(list(out.glob("meta-narrow-*.png"))) == 4
    assert next(row["curves"]["epoch"] for row in rows if row["run"] == "focal_5") == [2, 3]


def test_the_narrow_profile_takes_thousands_of_outer_steps_one_for_every_batch():
    profile = images.profile_of("meta-regularization", "narrow")
    batches = round(profile.rows * profile.parts[0] / profile.batch_size)
    assert batches * profile.epochs >= 4900
    assert profile.every == 1
    assert profile.augment


def test_the_fixed_gamma_is_chosen_on_the_selection_rows_of_each_seed():
    rows = [
        {"method": method, "seed": seed, "selection_ece": abs(place - seed), "ece": place}
        for seed in (1, 3)
        for place, method in enumerate(meta_regularization.FIXED_GAMMA)
    ]
    chosen = meta_regularization.with_chosen_gamma(rows)[len(rows) :]
    assert [(row["seed"], row["ece"], row["method"]) for row in chosen] == [
        (1, 1, "focal_chosen"),
        (3, 3, "focal_chosen"),
    ]
    fewer = meta_regularization.with_chosen_gamma(rows[:1] + rows[2:])[len(rows) - 1 :]
    assert [row["ece"] for row in fewer] == [0, 3], "the choice is among what all seeds have"
    assert meta_regularization.with_chosen_gamma(rows[:1]) == rows[:1]


def test_a_method_that_lacks_seeds_says_so():
    row = dict.fromkeys(_tables.IMAGE_COLUMNS, 1.0) | {"dataset": "d", "network": "n"}
    rows = [
        {**row, "method": "a", "seed": 0},
        {**row, "method": "a", "seed": 1},
        {**row, "method": "b", "seed": 0},
    ]
    table = image_tables(rows, {"a": "A", "b": "B"})
    assert "| A | 1.00 ± 0.00 |" in table
    assert "| B, 1 of the seeds | 1.00 |" in table


@pytest.mark.slow
def test_early_stopped_and_temperature_come_from_plain_training(finished):
    rows = {row["method"]: row for row in finished[0]}
    assert rows["temperature"]["error"] == rows["standard"]["error"]  # scaling keeps the choice
    assert rows["temperature"]["run"] == rows["early_stopped"]["run"] == "standard"


@pytest.mark.slow
def test_curves_have_a_point_an_epoch_and_gamma_starts_at_one(finished):
    rows = {row["method"]: row for row in finished[0]}
    assert len(rows["standard"]["curves"]["ece"]) == 2
    assert "gamma_mean" not in rows["focal"]["curves"]
    assert rows["gamma_net_sece"]["curves"]["gamma_mean"][0] == pytest.approx(1, abs=0.5)


@pytest.mark.slow
def test_finished_runs_are_not_run_again_and_a_seed_may_be_added(finished, data_dir, monkeypatch):
    rows, out = finished
    ran = []
    monkeypatch.setattr(_images, "run_unit", lambda experiment, unit: ran.append(unit))
    profile = tiny("meta-regularization", every=1)
    assert images.reproduce("meta-regularization", profile, data_dir, out) == rows
    assert not ran
    with pytest.raises(ConfigError, match=r"other settings \(profile\)"):
        images.reproduce("meta-regularization", replace(profile, epochs=3), data_dir, out)


def test_the_same_seed_gives_the_same_row(data_dir):
    experiment = loss_functions.experiment(tiny("loss-functions"), data_dir)
    unit = ("fashion-mnist", "vgg16", "focal", 3)
    first, second = (_images.run_unit(experiment, unit) for _ in range(2))
    for rows in (first, second):
        rows[0].pop("seconds")
    assert first == second
    assert json.loads(json.dumps(first)) == first


def test_states_are_kept_by_what_they_are_best_at(data_dir, monkeypatch):
    """The last one always, the others only when their score is a new low."""
    module = torch.nn.Linear(1, 1)
    data = _images._Data.of(tiny("loss-functions"), _images._images("fashion-mnist", data_dir), seed=0)
    watch = _images._Watch(data, learns_gamma=False)
    right, wrong = (
        np.eye(10)[np.arange(20) % 10] * 0.8 + 0.02,
        np.roll(np.eye(10), 1, axis=0)[np.arange(20) % 10],
    )
    answers = [right, 0.5 * right + 0.05, wrong * 0.8 + 0.02]
    for count, probs in enumerate(answers, start=1):
        monkeypatch.setattr(_images, "predictions", lambda module, data, p=probs: (np.arange(20) % 10, p))
        torch.nn.init.constant_(module.weight, count)
        watch(SimpleNamespace(step=SimpleNamespace(problem=SimpleNamespace(module=module), count=count)))
    assert {name: int(state["weight"]) for name, state in watch.states.items()} == {
        "last": 3,
        "error": 1,
        "log_loss": 1,
    }
    assert watch.curves["error"] == [0, 0, 100]


def test_parts_are_disjoint_and_the_test_images_are_left_alone(data_dir):
    loaded = _images._images("fashion-mnist", data_dir)
    data = _images._Data.of(tiny("loss-functions"), loaded, seed=0)
    assert [part.n_rows for part in (data.train, data.outer, data.selection, data.test)] == [80, 80, 40, 60]


@pytest.mark.slow
def test_figures_of_the_loss_functions_have_a_panel_for_each_network(finished):
    row = next(row for row in finished[0] if row["method"] == "standard")
    rows = [
        {**row, "network": network, "method": run}
        for network in ("resnet18", "vgg16")
        for run in loss_functions.RECIPES
    ]
    figures = loss_functions.figures(rows)
    assert [len(figure.axes) for figure in figures.values()] == [2, 2]
    assert "| L1 norm of the logits |" in image_tables(rows, loss_functions.METHODS)


@pytest.mark.slow
def test_binned_rows_have_the_same_bins_again(finished):
    row = finished[0][0]
    right, claimed = _images.binned_rows(row)
    assert len(right) == 60
    assert right.mean() == pytest.approx(1 - row["error"] / 100)
    assert abs(right.mean() - claimed.mean()) <= row["ece"] / 100 + 1e-12


@pytest.mark.slow
def test_the_full_setting_without_a_gpu_states_its_cost(data_dir, monkeypatch):
    monkeypatch.setattr(images.torch.cuda, "is_available", lambda: False)
    profile = replace(tiny("loss-functions"), needs_gpu=True)
    with pytest.raises(
        ConfigError, match=r"needs a GPU, and torch finds none: 12 training runs, about .* hours"
    ):
        images.announce("loss-functions", profile, data_dir)
    announced = images.announce("loss-functions", profile, data_dir, long_run=True)
    assert announced.startswith("loss-functions on fashion-mnist: 12 training runs, about 0.0 hours")
    assert all(paper.PROFILES["paper"].needs_gpu for paper in images.PAPERS.values())


def test_profiles_can_be_changed_and_mistakes_get_a_hint(tmp_path):
    profile = images.profile_of("meta-regularization", "small", dataset="cifar10-small", seeds=7)
    assert (profile.dataset, profile.seeds) == ("cifar10-small", 7)
    with pytest.raises(ConfigError, match="profile must be one of"):
        images.profile_of("meta-regularization", "tiny")
    with pytest.raises(DataError, match="fashion"):
        images.announce("loss-functions", tiny("loss-functions"), tmp_path)
