"""The decisions of each rule, row by row, for hand-written probabilities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from selfcal.errors import ConfigError
from selfcal.reject import ABSTAIN, Costs, SelectiveClassifier, risk_bound, threshold_for_risk
from selfcal.reject.rules import risk_guarantee


class Says:
    """A classifier whose input is its output: each row of X is its probabilities."""

    def __init__(self, classes):
        self.classes_ = np.asarray(classes)

    def predict_proba(self, X):
        return np.asarray(X)


@st.composite
def tables(draw):
    n, k = draw(st.integers(2, 40)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.dirichlet(np.ones(k), size=n), rng.integers(0, k, n), rng


@settings(deadline=None)
@given(tables())
def test_chow_minimises_the_expected_cost(data):
    probs, y, rng = data
    k = probs.shape[1]
    table, abstain = rng.random((k, k)), 0.4
    model = SelectiveClassifier(Says(np.arange(k)), costs=Costs(table, abstain))
    try:
        found = model.fit(probs, y).predict(probs)
    except UserWarning:  # no row is answered at all
        found = np.full(len(y), ABSTAIN)
    for p, answer in zip(probs, found, strict=True):
        expected = {ABSTAIN: abstain} | {j: sum(p[i] * table[i, j] for i in range(k)) for j in range(k)}
        assert expected[answer] == pytest.approx(min(expected.values()))


def test_chow_with_one_cost_is_a_threshold_on_the_confidence():
    probs = np.array([[0.95, 0.05], [0.75, 0.25], [0.4, 0.6], [0.1, 0.9]])
    model = SelectiveClassifier(Says(["no", "yes"]), costs=Costs(wrong=10, abstain=2.6))
    found = model.fit(probs, ["no", "no", "yes", "yes"]).predict(probs)
    assert found.tolist() == ["no", "no", ABSTAIN, "yes"]
    assert model.threshold_ == 2.6


def test_a_costly_error_is_avoided_even_where_it_is_unlikely():
    """Missing an illness costs 100 times a false alarm."""
    costs = Costs(wrong=[[0, 1], [100, 0]], abstain=0.5)
    probs = np.array([[0.999, 0.001], [0.99, 0.01], [0.6, 0.4], [0.4, 0.6]])
    model = SelectiveClassifier(Says(["well", "ill"]), costs=costs)
    found = model.fit(probs, ["well", "well", "ill", "ill"]).predict(probs)
    assert found.tolist() == ["well", ABSTAIN, ABSTAIN, "ill"]
    assert "A row cost 0.2500" in model.guarantee_.text
    assert model.guarantee_.text.endswith("on average, and 0.2500 had each been answered.")


def test_window_rejects_between_its_ends():
    probs = np.array([[1 - p, p] for p in (0.0, 0.3, 0.31, 0.5, 0.59, 0.6, 1.0)])
    model = SelectiveClassifier(Says([False, True]), window=(0.3, 0.6))
    found = model.fit(probs, [False, False, False, True, True, True, False]).predict(probs)
    assert found.tolist() == [False, False, ABSTAIN, ABSTAIN, ABSTAIN, True, True]
    assert model.threshold_ == (0.3, 0.6)
    assert (model.guarantee_.n, model.guarantee_.accepted, model.guarantee_.errors) == (7, 4, 1)
    assert model.guarantee_.bound == risk_bound(1, 4, 0.95)


def test_a_window_on_one_side_of_a_half_decides_by_its_ends():
    probs = np.array([[0.9, 0.1], [0.6, 0.4]])
    model = SelectiveClassifier(Says([0, 1]), window=(0.15, 0.3)).fit(probs, [0, 1])
    assert model.predict(probs).tolist() == [0, 1]


def test_the_guarantee_of_a_fixed_rule_holds():
    """The true risk of a window is below its bound with the stated probability."""
    rng, held = np.random.default_rng(0), []
    for _ in range(500):
        p = rng.random(120)
        model = SelectiveClassifier(Says([0, 1]), window=(0.2, 0.8), confidence_level=0.8)
        model.fit(np.column_stack([1 - p, p]), rng.random(120) < p)
        held.append(model.guarantee_.bound >= 0.1)  # calibrated, so wrong as often as 0.1 on average
    assert np.mean(held) >= binom.ppf(1e-4, 500, 0.8) / 500


def test_min_coverage_accepts_the_most_confident():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 400)
    probs = np.column_stack([1 - p, p])
    model = SelectiveClassifier(Says([0, 1]), min_coverage=0.7).fit(probs, rng.random(400) < p)
    accepted = model.accepts(probs)
    assert p[accepted].min() > p[~accepted].max()
    assert 0.7 < model.guarantee_.coverage < 0.8
    assert model.guarantee_.risk == pytest.approx(model.guarantee_.errors / accepted.sum())


@pytest.mark.filterwarnings("ignore:With probability:selfcal.errors.PromiseWarning")
def test_the_guarantee_holds_for_each_class():
    """One class is named wrongly far more often than the other; together they would hide it."""
    rng, broken = np.random.default_rng(1), []
    for _ in range(150):
        c, second = rng.uniform(0.5, 1, 3000), rng.random(3000) < 0.2
        probs = np.where(second[:, None], np.column_stack([1 - c, c]), np.column_stack([c, 1 - c]))
        wrong = rng.random(3000) < np.where(second, 0.4, 0.1) * 2 * (1 - c)
        model = SelectiveClassifier(Says(["a", "b"]), max_risk=0.1, confidence_level=0.8, per_class=True)
        model.fit(probs, np.where(second ^ wrong, "b", "a"))
        # the mean of 2 (1 - c) above a threshold t is 1 - t
        risks = np.array([0.1, 0.4]) * (1 - np.maximum(model.threshold_, 0.5))
        broken.append(np.any(risks > 0.1))
    assert np.mean(broken) <= binom.ppf(1 - 1e-4, 150, 0.2) / 150
    assert model.threshold_[0] < model.threshold_[1] < 1


def test_a_class_without_evidence_is_never_predicted():
    p = np.linspace(0.6, 1, 300)
    probs = np.column_stack([p, 1 - p, 0 * p])
    model = SelectiveClassifier(Says(["ant", "bee", "cat"]), max_risk=0.05, per_class=True)
    with pytest.warns(UserWarning, match="There are too few rows to ever answer 'bee', 'cat'"):
        model.fit(probs, np.full(300, "ant"))
    assert model.guarantee_.holds
    assert model.threshold_.tolist() == [0, np.inf, np.inf]
    assert model.predict([[0.6, 0.4, 0], [0.1, 0.9, 0]]).tolist() == ["ant", ABSTAIN]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of max_risk, min_coverage, costs, window; got none of them"),
        ({"max_risk": 0.1, "min_coverage": 0.5}, "got max_risk and min_coverage"),
        ({"max_risk": 0}, "max_risk must be between 0 and 1"),
        ({"max_risk": "5%"}, "max_risk must be between 0 and 1"),
        ({"min_coverage": 0.0}, "min_coverage must be a number in"),
        ({"min_coverage": np.nan}, "min_coverage must be a number in"),
        ({"costs": 0.3}, r"such as Costs\(wrong=1, abstain=0.2\); got 0.3"),
        ({"costs": Costs(wrong=[[0, 1]])}, r"a table of shape \(2, 2\)"),
        ({"costs": Costs(wrong=np.nan)}, "costs.wrong must be a finite number"),
        ({"costs": Costs(abstain=np.inf)}, "costs.abstain must be a number"),
        ({"window": 0.5}, "window must be two numbers"),
        ({"window": (0.2, 0.5, 0.7)}, "window must be two numbers"),
        ({"window": (0.7, 0.3)}, "Swap them"),
        ({"window": (-0.1, 0.3)}, r"window\[0\] must be a number in"),
        ({"min_coverage": 0.5, "per_class": True}, "per_class=True goes with max_risk; got min_coverage"),
        ({"max_risk": 0.1, "per_class": "yes"}, "per_class must be True or False"),
        ({"max_risk": 0.1, "confidence_level": 1.0}, "level must be a number in"),
    ],
    ids=str,
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        SelectiveClassifier(Says([0, 1]), **options).fit([[0.4, 0.6], [0.6, 0.4]], [1, 0])


def test_a_window_needs_two_classes():
    with pytest.raises(ConfigError, match="window is for two classes; the estimator has 3"):
        SelectiveClassifier(Says([0, 1, 2]), window=(0.2, 0.8)).fit([[0.4, 0.3, 0.3]], [1])


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_a_threshold_from_held_out_predictions_is_that_of_a_classifier_with_them(level):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 800)
    wrong = rng.random(800) > confidence
    threshold, guarantee = risk_guarantee(confidence, wrong, max_risk=0.2, level=level)
    assert threshold == threshold_for_risk(wrong, confidence, max_risk=0.2, level=level)
    assert (guarantee.accepted, guarantee.errors) == (
        (confidence >= threshold).sum(),
        (wrong & (confidence >= threshold)).sum(),
    )
    assert guarantee.holds


def test_held_out_predictions_that_are_too_few_or_too_wrong():
    threshold, guarantee = risk_guarantee(np.ones(10), np.zeros(10), max_risk=0.05)
    assert (threshold, guarantee.holds, guarantee.accepted) == (np.inf, False, 0)
    assert "at least 59 rows, none of them wrong; there are 10" in guarantee.text
    assert (
        "most confident answers are wrong" in risk_guarantee(np.ones(99), np.ones(99), max_risk=0.05)[1].text
    )
