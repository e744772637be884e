import dataclasses
import html.parser
import json

import numpy as np
import pytest

from selfcal import metrics
from selfcal.errors import DataError
from selfcal.metrics import calibration_report

from .strategies import weights_for
from .truth import drawn


@pytest.fixture(scope="module")
def data():
    return drawn(600, sharper=2.0)[:2]


@pytest.fixture(scope="module")
def report(data):
    return calibration_report(*data, n_resamples=200)


def test_every_number_is_that_of_its_function(data, report):
    for name in ("accuracy", "log_loss", "brier_score"):
        assert getattr(report, name).value == pytest.approx(getattr(metrics, name)(*data))
        assert getattr(report, name) == metrics.score_interval(*data, score=name)
    assert report.ece == metrics.calibration_error_interval(*data)
    assert report.brier_parts == metrics.brier_decomposition(*data)
    assert report.errors == {
        "maximum_error": metrics.maximum_calibration_error(*data),
        "adaptive_error": metrics.adaptive_calibration_error(*data),
        "classwise_error": metrics.classwise_calibration_error(*data),
        "smooth_error": metrics.smooth_calibration_error(*data),
        "mmce": metrics.mmce(*data),
        "overconfidence": metrics.overconfidence(*data),
        "underconfidence": metrics.underconfidence(*data),
    }
    assert report.tests["consistency"] == metrics.consistency_test(*data, n_resamples=200)
    assert report.tests["spiegelhalter"] == metrics.spiegelhalter_test(*data)
    assert report.tests["kernel"] == metrics.kernel_calibration_test(*data, n_resamples=200)
    assert report.bins.count.sum() == report.n == 600


def test_the_noise_floor_is_that_of_the_confidences(data, report):
    floor = metrics.ece_noise_floor(data[1].max(axis=1))
    assert report.noise_floor.mean == pytest.approx(floor.mean, rel=0.1)
    assert report.noise_floor.high == pytest.approx(floor.high, rel=0.15)


def rows_with(accuracy, confidence, n=2000):
    """Rows of one confidence with exactly this accuracy."""
    return np.where(np.arange(n) < accuracy * n, 0, 1), np.tile([confidence, 1 - confidence], (n, 1))


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (rows_with(0.7, 0.9), "Over-confident: its mean confidence is 90.0% and its accuracy 70.0%"),
        (rows_with(0.95, 0.8), "Under-confident: its mean confidence is 80.0% and its accuracy 95.0%"),
        (rows_with(0.9, 0.9), "No sign of miscalibration"),
        (drawn(1000)[:2], "No sign of miscalibration"),
        (
            [np.concatenate(pair) for pair in zip(rows_with(0.8, 0.9), rows_with(0.8, 0.7), strict=True)],
            "Over-confident for some confidences, under-confident for others",
        ),
    ],
    ids=["over", "under", "exact", "calibrated", "both"],
)
def test_verdicts(data, verdict):
    report = calibration_report(*data, n_resamples=200)
    assert report.verdict.startswith(verdict)
    assert str(report).splitlines()[0] == report.verdict


def test_a_fault_that_the_top_label_hides_is_named():
    y, p, _ = drawn(3000, k=3)
    order = np.argsort(p, axis=1)
    rows = np.arange(len(p))[:, None]
    hidden = p.copy()
    hidden[rows, order[:, :2]] = p[rows, order[:, 1::-1]]
    assert "not in the ECE" in calibration_report(y, hidden).verdict


def test_text_shows_bins_level_and_all_tests(report):
    text = str(report)
    assert "ECE, 15 bins [95% interval]" in text
    assert text.count("test") == 5
    assert sum(line.startswith("    0.") for line in text.splitlines()) == np.count_nonzero(report.bins.count)


def test_dictionary_is_strict_json(report):
    kept = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert set(kept) == {field.name for field in dataclasses.fields(report)} | {"verdict"}
    assert kept["ece"] == dataclasses.asdict(report.ece)
    assert kept["bins"]["count"] == report.bins.count.tolist()


@pytest.mark.parametrize("probs", [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.3, 0.7]], ids=str)
@pytest.mark.parametrize("n", [1, 3])
def test_few_and_certain_rows(probs, n):
    report = calibration_report([0] * n, [probs] * n, n_resamples=50)
    json.dumps(report.to_dict(), allow_nan=False)
    assert all(0 <= test.p_value <= 1 for test in report.tests.values())
    assert str(report)


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.open = set(), []

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_small_escaped_and_needs_nothing(report):
    tags = Tags()
    tags.feed(report._repr_html_())
    assert not tags.open
    assert tags.seen == {"p", "b", "table", "tr", "td", "th", "details", "summary"}
    assert len(report._repr_html_()) < 10_000
    odd = dataclasses.replace(report, errors=report.errors | {"<script>": 1.0})
    assert "<script>" not in odd._repr_html_()


def test_weights_and_names():
    y, p, _ = drawn(80, k=3)
    names = np.array(["a", "b", "c"])
    w = weights_for(80)
    named = calibration_report(names[y], p, classes=names, sample_weight=w, n_resamples=50)
    assert named.classes == ("a", "b", "c")
    plain = calibration_report(y, p, sample_weight=w, n_resamples=50)
    assert named.to_dict() | {"classes": None} == plain.to_dict() | {"classes": None}
    assert named.ece.value == pytest.approx(metrics.expected_calibration_error(y, p, sample_weight=w))


def test_frozen_and_checked(report):
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.n = 3
    with pytest.raises(DataError, match="sum to one"):
        calibration_report([0], [[0.5, 0.6]])


def test_the_verdict_shares_its_error_rate_among_the_tests():
    """With each at the full rate, one calibrated model in ten would be called miscalibrated."""
    y, probs = np.array([0, 1] * 50), np.tile([0.5, 0.5], (100, 1))
    report = calibration_report(y, probs, n_resamples=20, level=0.9)
    assert sum(report._significance_level(name) for name in report.tests) == pytest.approx(0.1)
