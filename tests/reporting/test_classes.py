"""Base rates, usefulness, recall, precision and confusion, against scikit-learn."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from selfcal import metrics
from selfcal.commands._scores import scores_text, verdict_text
from selfcal.reporting import summarise
from selfcal.reporting.predictions import Predictions
from tests.reporting.judged import predictions

QUICK = {"n_resamples": 50}


def coin(n=1000, rate=0.3, seed=0, spread=0.001):
    rng = np.random.default_rng(seed)
    p = rate + rng.normal(0, spread, n)
    y = (rng.random(n) < rate).astype(int)
    return Predictions.from_probabilities(y, np.column_stack([1 - p, p]))


def test_the_base_rates_score_what_a_dummy_classifier_scores():
    judged = predictions(n=300, k=4)
    found = summarise({"net": judged}, **QUICK).baseline
    constant = (
        DummyClassifier(strategy="prior").fit(judged.y[:, None], judged.y).predict_proba(judged.y[:, None])
    )
    assert found.rates == pytest.approx(constant[0])
    for name in ("accuracy", "log_loss", "brier_score", "roc_auc"):
        assert getattr(found, name) == pytest.approx(getattr(metrics, name)(judged.y, constant))


@pytest.mark.parametrize("k", [2, 5])
def test_recall_precision_and_confusion_are_those_of_scikit_learn(k):
    judged = predictions(n=500, k=k)
    numbers = summarise({"net": judged}, **QUICK).methods[0]
    of_class = {"labels": range(k), "average": None}
    assert [c.recall.value for c in numbers.by_true_class] == pytest.approx(
        recall_score(judged.y, judged.chosen, **of_class)
    )
    assert [c.precision.value for c in numbers.by_true_class] == pytest.approx(
        precision_score(judged.y, judged.chosen, **of_class)
    )
    matrix = confusion_matrix(judged.y, judged.chosen, labels=range(k))
    assert np.array(numbers.confusion.counts).tolist() == matrix.tolist()
    np.fill_diagonal(matrix, 0)
    assert numbers.confusion.mistakes[0][2] == matrix.max()
    assert sum(n for _, _, n in numbers.confusion.mistakes) <= matrix.sum()
    assert numbers.roc_auc.value == pytest.approx(metrics.roc_auc(judged.y, judged.probs))
    for score in numbers.by_true_class:
        claim = np.column_stack([1 - judged.probs[:, score.code], judged.probs[:, score.code]])
        expected = metrics.roc_auc_interval((judged.y == score.code).astype(int), claim)
        assert score.roc_auc.value == pytest.approx(expected.value, abs=1e-9)
        assert score.roc_auc.low == pytest.approx(expected.low, abs=1e-6)


def test_of_many_classes_the_lowest_recalls_and_the_leading_mistakes_are_kept():
    judged = predictions(1.5, n=2000, k=40, alpha=0.1)
    numbers = summarise({"net": judged}, **QUICK).methods[0]
    assert (len(numbers.by_true_class), numbers.confusion.counts) == (25, ())
    ends = [one.recall.high for one in numbers.by_true_class]
    assert ends == sorted(ends)
    counts = [n for _, _, n in numbers.confusion.mistakes]
    assert counts == sorted(counts, reverse=True)
    assert len(counts) == 20


def test_a_class_without_rows_or_predictions_has_no_recall_or_precision():
    judged = Predictions.from_probabilities([0, 0, 1], [[0.8, 0.1, 0.1]] * 3)
    scores = summarise({"net": judged}, **QUICK).methods[0].by_true_class
    assert (scores[1].recall.value, scores[1].precision) == (0, None)
    assert (scores[2].recall, scores[2].precision, scores[2].roc_auc) == (None, None, None)


def test_a_calibrated_coin_is_told_that_it_is_of_no_use():
    reported = summarise({"net": coin()}, **QUICK)
    judged = reported.methods[0]
    assert (judged.judgement, judged.usefulness.kind) == ("honest", "none")
    assert "no better than always predicting the base rates" in verdict_text(judged)
    lines = scores_text(judged, 0.95, reported.baseline).splitlines()
    assert lines[0].endswith("base rates")
    assert [line.split()[-1] for line in lines if "ROC AUC" in line] == ["0.5000"]


def test_useful_models_are_not_told_so():
    for judged in (predictions(1), predictions(1, n=3000, k=2)):
        found = summarise({"net": judged}, **QUICK).methods[0]
        assert found.usefulness.kind == "better"
        assert found.usefulness.log_loss_gain.low > 0
        assert "\n" not in verdict_text(found)


def test_boastful_predictions_that_rank_are_told_to_recalibrate():
    judged = predictions(30, n=1500, k=3)
    found = summarise({"net": judged}, **QUICK).methods[0]
    assert found.usefulness.kind == "ranks"
    assert "recalibrate" in found.usefulness.text


def test_coins_are_rarely_called_useful():
    kinds = [
        summarise({"net": coin(300, seed=s)}, n_resamples=10).methods[0].usefulness.kind for s in range(60)
    ]
    assert kinds.count("none") >= 52


def test_one_class_alone_has_no_usefulness():
    judged = Predictions.from_probabilities([0, 0], [[0.8, 0.2], [0.6, 0.4]])
    found = summarise({"net": judged}, **QUICK).methods[0]
    assert (found.usefulness, found.roc_auc) == (None, None)


def test_a_constant_confidence_does_not_tell_right_from_wrong():
    right = (np.random.default_rng(0).random(500) < 0.8).astype(int)
    judged = Predictions(right, np.ones_like(right), np.full(500, 0.8), np.tile([0.2, 0.8], (500, 1)))
    found = summarise({"net": judged}, classes=["wrong", "right"], of_classes=False, **QUICK).methods[0]
    assert found.usefulness.kind == "none"
    assert "does not tell right from wrong" in found.usefulness.text
