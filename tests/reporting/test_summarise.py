import json
from dataclasses import replace

import numpy as np
import pytest

from selfcal import metrics
from selfcal.errors import ConfigError, DataError
from selfcal.label_noise.audit import audit_labels
from selfcal.reporting import Report, summarise
from selfcal.reporting.predictions import Predictions
from tests.reporting.judged import HOSTILE, predictions

QUICK = {"n_resamples": 100}


def test_scores_are_the_metrics():
    judged = predictions(2, n=600)
    numbers = summarise({"net": judged}, **QUICK).to_dict()["methods"][0]
    y, probs = judged.y, judged.probs
    assert numbers["ece"]["value"] == pytest.approx(metrics.expected_calibration_error(y, probs), abs=1e-12)
    interval = metrics.calibration_error_interval(y, probs)
    assert (numbers["ece"]["low"], numbers["ece"]["high"]) == pytest.approx((interval.low, interval.high))
    for name in ("log_loss", "brier_score"):
        expected = metrics.score_interval(y, probs, score=name)
        assert numbers[name] == {"value": expected.value, "low": expected.low, "high": expected.high}
    accuracy = metrics.score_interval(y, probs, score="accuracy")
    assert numbers["accuracy"]["value"] == accuracy.value
    assert (numbers["accuracy"]["low"], numbers["accuracy"]["high"]) == pytest.approx(
        (accuracy.low, accuracy.high)
    )
    floor = metrics.ece_noise_floor(judged.confidence, n_resamples=100)
    assert numbers["noise_floor"] == {"mean": floor.mean, "low": floor.low, "high": floor.high}
    bins = metrics.reliability_curve(judged.correct, judged.confidence)
    assert [b["accuracy"] for b in numbers["bins"]] == bins.accuracy[bins.count > 0].tolist()
    assert sum(b["rows"] for b in numbers["bins"]) == 600


def test_all_of_it_is_plain_json():
    judged = summarise({"a": predictions(), "b": predictions(4)}, row_names=range(400), **QUICK)
    numbers = judged.to_dict()
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert Report.from_dict(json.loads(json.dumps(numbers))) == judged


def test_a_stored_report_may_lack_what_has_a_default_and_have_what_is_unknown():
    judged = summarise({"a": predictions()}, title="T", **QUICK)
    stored = {name: value for name, value in judged.to_dict().items() if name not in ("title", "labels")}
    assert Report.from_dict({**stored, "later": 1}) == replace(judged, title="")


@pytest.mark.parametrize(
    ("change", "wording"),
    [
        (lambda d: d.update(rows="many"), "Report.rows must be of type int; got str"),
        (lambda d: d.update(rows=True), "Report.rows must be of type int; got bool"),
        (lambda d: d["methods"][0].update(judgement="fine"), "judgement must be one of 'honest', .*fine"),
        (lambda d: d["methods"][0]["ece"].update(low="0"), "Report.methods.ece.low must be of type float"),
        (
            lambda d: d["methods"][0]["reject"]["errors"].append(None),
            "errors must be of type int; got NoneType",
        ),
        (lambda d: d["settings"].update(seed=1), "settings must be of type str"),
        (lambda d: d.update(methods={}), "methods must be of type list"),
    ],
)
def test_a_stored_report_of_other_types_is_refused(change, wording):
    numbers = summarise({"a": predictions()}, **QUICK).to_dict()
    change(numbers)
    with pytest.raises(DataError, match=wording):
        Report.from_dict(numbers)


def test_methods_are_set_against_the_lowest_log_loss():
    first, second = predictions(4), predictions(1)
    numbers = summarise({"boastful": first, "honest": second}, **QUICK).methods
    assert numbers[1].log_loss_behind_best is None
    expected = metrics.compare(first.y, first.probs, second.probs).difference
    assert numbers[0].log_loss_behind_best.low == expected.low > 0


def test_single_rows_are_shown_only_if_they_are_named():
    judged = predictions(n=300)
    assert summarise({"net": judged}, **QUICK).methods[0].worst is None
    names = [f"patient {i}" for i in range(300)]
    worst = summarise({"net": judged}, row_names=names, n_worst=7, **QUICK).methods[0].worst
    assert len(worst) == 7
    confidence = [mistake.confidence for mistake in worst]
    assert confidence == sorted(judged.confidence[~judged.correct], reverse=True)[:7]
    row = int(worst[0].row.split()[1])
    assert (worst[0].true, worst[0].answered) == (judged.y[row], judged.chosen[row])
    assert worst[0].probability_of_true == judged.probs[row, judged.y[row]]


def test_the_confidence_judged_is_the_models_own():
    """A calibrator of the confidence need not agree with the largest probability."""
    honest = predictions()
    shy = Predictions(honest.y, honest.chosen, np.full(400, 0.2), honest.probs)
    numbers = summarise({"shy": shy}, **QUICK).methods[0]
    assert numbers.below_chance == 1.0
    assert numbers.mean_confidence == pytest.approx(0.2)
    assert numbers.judgement == "under"


@pytest.mark.parametrize("probs", [[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]], ids=["right", "wrong", "tie"])
def test_one_row(probs):
    numbers = summarise({"net": Predictions.from_probabilities([0], probs)}, row_names=["x"], **QUICK)
    json.dumps(numbers.to_dict(), allow_nan=False)


def test_names_are_made_fit_to_print():
    names = list(HOSTILE.values())
    judged = predictions(n=50, k=len(names))
    numbers = summarise(
        dict.fromkeys(names, judged), classes=names, settings={name: name for name in names}, **QUICK
    )
    shown = [m.name for m in numbers.methods] + list(numbers.classes)
    assert max(map(len, shown)) <= 80
    assert len(set(numbers.classes)) == len(names)
    json.dumps(numbers.to_dict(), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("methods", "options", "error", "wording"),
    [
        ({}, {}, DataError, "at least one method"),
        ({"a": [[0.5, 0.5]]}, {}, DataError, "must be a dictionary of Predictions"),
        ({"a": predictions(), "b": predictions(n=300)}, {}, DataError, "'b' has 300 rows"),
        ({"a": predictions(), "b": predictions(seed=1)}, {}, DataError, "or other labels than 'a'"),
        ({"a": predictions()}, {"classes": ["x"]}, DataError, "name the 3 columns"),
        ({"a": predictions()}, {"row_names": ["x"]}, DataError, "row_names has 1"),
        ({"a": predictions()}, {"level": 95}, ConfigError, "level must be"),
        ({"a": predictions()}, {"n_bins": 0}, ConfigError, "n_bins must be"),
    ],
)
def test_bad_input(methods, options, error, wording):
    with pytest.raises(error, match=wording):
        summarise(methods, **options)


def test_suspect_labels_are_numbered_as_in_their_table():
    y = np.arange(400) % 2
    labels = np.where(np.arange(400) % 8 == 0, 1 - y, y)
    audit = audit_labels(np.full((400, 2), 1 / 8) + np.eye(2)[y] * 6 / 8, labels)
    judged = summarise({"a": predictions()}, labels=audit, label_rows=range(1000, 1400), **QUICK)
    assert [suspect.row for suspect in judged.labels.rows] == (audit.flagged[:50] + 1000).tolist()
    assert len(judged.labels.rows) > 10
