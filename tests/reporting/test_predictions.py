import numpy as np
import pytest

from selfcal import metrics
from selfcal.errors import DataError
from selfcal.reporting.predictions import Predictions


class Named:
    classes_ = np.array(["no", "yes"])

    def predict(self, X):
        return np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]

    def predict_proba(self, X):
        return np.tile([0.7, 0.3], (len(X), 1))

    def confidence(self, X):
        return np.full(len(X), 0.4)


def test_names_become_codes_and_the_choice_is_the_classifiers_own():
    judged = Predictions.of(Named(), np.array([[1.0], [-1.0]]), ["yes", "yes"])
    assert judged.y.tolist() == [1, 1]
    assert judged.chosen.tolist() == [1, 0]
    assert judged.correct.tolist() == [True, False]
    assert judged.below_chance == 1.0


def test_scores_are_the_metrics():
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(3), 100)
    y = generator.integers(0, 3, 100)
    judged = Predictions.from_probabilities(y, probs)
    assert judged.scores() == {
        "accuracy": metrics.accuracy(y, probs),
        "ece": pytest.approx(metrics.expected_calibration_error(y, probs)),
        "log_loss": metrics.log_loss(y, probs),
        "brier": metrics.brier_score(y, probs),
    }
    assert judged.below_chance == 0.0


@pytest.mark.parametrize(
    ("y", "probs", "wording"),
    [
        ([0, 1], [[9.0, -3.0], [0.1, 0.2]], "If these are logits"),
        ([0], [[0.5, 0.5], [0.5, 0.5]], "y has 1, probs has 2"),
        (["a", "b"], [[0.5, 0.5], [0.5, 0.5]], "Pass classes="),
    ],
)
def test_bad_probabilities(y, probs, wording):
    with pytest.raises(DataError, match=wording):
        Predictions.from_probabilities(y, probs)


def test_names_with_classes():
    judged = Predictions.from_probabilities(["b", "a"], [[0.4, 0.6], [0.9, 0.1]], classes=["a", "b"])
    assert judged.correct.all()
