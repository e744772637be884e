"""What one network instead of an ensemble costs, judged on rows that no part of either has seen."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import distillation
from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.ensembles import fit as fitting
from selfcal.ensembles.distillation import cost_of_distilling
from selfcal.ensembles.training import Rows

METHOD = recipes.auto(candidates=["mlp", "linear"], folds=2, repeats=1)


def constant(*probs):
    """A network that always predicts these."""
    network = nn.Linear(1, len(probs))
    network.load_state_dict({"weight": torch.zeros(len(probs), 1), "bias": torch.tensor(probs).log()})
    return network


def test_cost_and_standard_error_by_hand():
    rows = Rows(torch.zeros(4, 1), np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 2.0, 0.5]))
    found = cost_of_distilling(
        constant(0.5, 0.5), constant(0.8, 0.2), rows, np.array([0, 1, 2, 2]), trained_on=16
    )
    gain, loss = np.log(0.8 / 0.5), np.log(0.2 / 0.5)
    cost = (2 * gain + 2.5 * loss) / 4.5
    assert found["log_loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert found["cost"] == pytest.approx(cost, abs=1e-6)
    groups = [gain - cost, gain - cost, 2.5 * (loss - cost)]
    assert found["standard_error"] == pytest.approx(np.sqrt(1.5 * np.square(groups).sum()) / 4.5, abs=1e-6)
    assert (found["held_out_rows"], found["training_rows"]) == (4, 16)
    assert "on 4 rows that a network and an ensemble trained on the other 16" in found["measured"]


def test_no_part_of_student_or_teacher_has_seen_the_judged_rows(monkeypatch):
    """Other labels of the rows that are judged change the judgement, and neither of the two models."""
    X, y = Blobs(std=1.7).sample(200, seed=0)
    groups = np.arange(len(y)) // 2
    judged = []

    def spy(student, teacher, rows, own, **options):
        judged.append((student, teacher, rows, own))
        return cost_of_distilling(student, teacher, rows, own, **options)

    monkeypatch.setattr(fitting, "cost_of_distilling", spy)

    def fit(labels):
        settings = {"n_networks": 1, "max_epochs": 4, "hidden": (8,), "random_state": 0, "standardize": False}
        return SelfCalibratedClassifier(METHOD, **settings).fit(X, labels, groups=groups)

    first = fit(y)
    held_out = np.flatnonzero(np.isin(groups, judged[0][3]))
    assert len(held_out) == first.distilled_["held_out_rows"] == len(y) - first.distilled_["training_rows"]
    assert 30 <= len(held_out) <= 50
    monkeypatch.setattr(
        fitting, "split_groups", lambda *_, **__: [np.delete(np.arange(200), held_out), held_out]
    )
    other = y.copy()
    other[held_out] = (other[held_out] + 1) % 5
    second = fit(other)
    assert second.distilled_["log_loss"] != first.distilled_["log_loss"]
    for model, again in zip(judged[0][:2], judged[1][:2], strict=True):
        for one, two in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_the_network_that_predicts_is_trained_on_all_rows_and_unchanged_by_the_estimate(monkeypatch):
    X, y = Blobs(std=1.7).sample(120, seed=0)
    settings = {"max_epochs": 3, "hidden": (8,), "random_state": 0}
    whole = SelfCalibratedClassifier(METHOD, **settings).fit(X, y)
    one = SelfCalibratedClassifier(METHOD, n_networks=1, **settings).fit(X, y)
    assert len(one.train_rows_) == len(X)
    np.testing.assert_array_equal(one.out_of_fold_, whole.out_of_fold_)
    assert one.distilled_["cost"] == one.distilled_["log_loss"] - one.distilled_["teacher_log_loss"]
    assert one.distilled_["standard_error"] > 0


@pytest.mark.slow
def test_the_estimated_cost_is_the_true_one_within_noise():
    rows = [row for seed in range(100, 106) for row in distillation.work(("blobs-1.7", seed))]
    assert "| agrees |" in distillation.markdown(rows)


def test_the_benchmark_says_so_if_the_estimate_is_biased():
    def row(seed, estimated):
        common = {"set": "s", "seed": seed, "failed": None, "standard_error": 0.01}
        return common | {"estimated": estimated, "true": 0.05}

    assert "agrees" in distillation.markdown([row(0, 0.04), row(1, 0.06)])
    assert "**biased**" in distillation.markdown([row(0, 0.01), row(1, 0.011)])
