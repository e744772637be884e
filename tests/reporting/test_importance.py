"""Permutation importance: its value, its noise and its bounded cost."""

import numpy as np
import pytest
from sklearn.inspection import permutation_importance as by_scikit_learn
from sklearn.linear_model import LogisticRegression

from selfcal.errors import ConfigError, DataError
from selfcal.reporting import permutation_importance, report
from tests.reporting.judged import predictions


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    y = (rng.random(1200) < 1 / (1 + np.exp(-2 * X[:, 0] - X[:, 1]))).astype(int)
    return LogisticRegression().fit(X[:600], y[:600]), X[600:], y[600:]


def test_the_rise_of_the_log_loss_is_that_of_scikit_learn(fitted):
    model, X, y = fitted
    found = permutation_importance(model.predict_proba, X, y, columns=["a", "b", "c", "d"], n_repeats=30)
    expected = by_scikit_learn(model, X, y, scoring="neg_log_loss", n_repeats=30, random_state=1)
    values = {one.column: one.log_loss.value for one in found.columns}
    assert [values[name] for name in "abcd"] == pytest.approx(expected.importances_mean, abs=0.03)
    assert [one.column for one in found.columns[:2]] == ["a", "b"]
    assert [one.finding for one in found.columns] == [True, True, False, False]


def test_features_of_a_column_are_permuted_together(fitted):
    model, X, y = fitted
    found = permutation_importance(model.predict_proba, X, y, columns={"both": [0, 1], "none": [2, 3]})
    alone = permutation_importance(model.predict_proba, X, y)
    assert found.columns[0].column == "both"
    assert found.columns[0].log_loss.value > alone.columns[0].log_loss.value


def test_the_same_seed_gives_the_same_and_x_is_left_alone(fitted):
    model, X, y = fitted
    before = X.copy()
    first, same, other = (permutation_importance(model.predict_proba, X, y, seed=seed) for seed in (0, 0, 1))
    assert first == same != other
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(("n_columns", "n_rows"), [(3, 5000), (50, 5000), (700, 3000), (5000, 300)])
def test_the_cost_is_bounded(n_columns, n_rows):
    predicted = 0

    def counting(X):
        nonlocal predicted
        predicted += len(X)
        return np.full((len(X), 2), 0.5)

    X, y = np.zeros((n_rows, n_columns)), np.arange(n_rows) % 2
    found = permutation_importance(counting, X, y, max_predictions=20_000)
    assert predicted <= 21_100
    assert not any(one.finding for one in found.columns)
    assert ("drawn at random" in found.text) == (len(found.columns) < n_columns)


def test_it_is_shown_in_the_report(fitted, tmp_path):
    model, X, y = fitted
    found = permutation_importance(model.predict_proba, X, y, columns=["a", "<b>", "c", "d"])
    page = report(
        {"net": predictions()}, tmp_path / "report.html", importance=found, n_resamples=50
    ).read_text()
    assert "Columns: which ones matter?" in page
    assert "&lt;b&gt;" in page
    assert found.text in page


@pytest.mark.parametrize(
    ("options", "error", "wording"),
    [
        ({"columns": ["a"]}, DataError, "name the 4 features"),
        ({"columns": {"a": [4]}}, DataError, "positions of the 4 features"),
        ({"n_repeats": 0}, ConfigError, "n_repeats must be"),
        ({"y": [0]}, DataError, "y has 1"),
    ],
)
def test_bad_input(fitted, options, error, wording):
    model, X, y = fitted
    with pytest.raises(error, match=wording):
        permutation_importance(model.predict_proba, **{"X": X, "y": y, **options})
