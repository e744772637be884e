import json

import numpy as np
import pytest

from selfcal import metrics, recipes
from selfcal.experiments import demo
from selfcal.experiments.demo import LOGISTIC, METHODS, ORACLE, REFERENCE, run_demo


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    few = {name: (method, {"max_epochs": 20}) for name, (method, _) in METHODS.items()}
    few["auto"] = (
        recipes.auto(candidates=["linear", "discriminant"], folds=2, repeats=1),
        {"max_epochs": 20},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "METHODS", few)
        return run_demo(tmp_path_factory.mktemp("demo"))


def test_every_method_is_shown_on_both_data_sets(shown):
    generated, table = shown
    assert list(generated.predictions) == [*METHODS, ORACLE]
    assert list(table.predictions) == [*METHODS, LOGISTIC]


def test_the_methods_have_the_same_rows_to_learn_from_and_others_to_be_tested_on():
    for data in (demo.generated(), demo.real()):
        both = np.vstack([data.X, data.X_test])
        assert len(np.unique(both, axis=0)) == len(both) == len(data.y) + len(data.y_test)


def test_differences_are_those_of_the_rows(shown):
    for one in shown:
        reference = one.predictions[REFERENCE]
        assert set(one.differences) == set(one.predictions) - {REFERENCE}
        for name, difference in one.differences.items():
            judged = one.predictions[name]
            away = metrics.log_loss(judged.y, judged.probs) - metrics.log_loss(judged.y, reference.probs)
            assert difference.value == pytest.approx(away)


def test_the_oracle_is_the_posterior(shown):
    oracle = shown[0].predictions[ORACLE]
    assert abs(metrics.overconfidence(oracle.y, oracle.probs)) < 0.03
    assert oracle.scores()["log_loss"] < shown[0].predictions["no early stopping"].scores()["log_loss"]


def test_the_pages_show_every_method(shown):
    for one in shown:
        numbers = json.loads(one.page.with_suffix(".json").read_text())
        assert [method["name"] for method in numbers["methods"]] == list(one.predictions)
    assert "Confidence over the plane" in shown[0].page.read_text()
    assert all(len(one.page.read_bytes()) < 1_500_000 for one in shown)
