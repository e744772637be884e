"""Calibration in groups of rows: how they are cut, and that many of them do not cry wolf."""

import numpy as np
import pytest

from selfcal.errors import DataError
from selfcal.reporting import _groups, summarise
from selfcal.reporting._groups import cut
from selfcal.reporting.predictions import Predictions

QUICK = {"n_resamples": 50}


def honest(n, seed, sharper=1.0):
    """Predictions of two classes, calibrated if `sharper` is 1; it may differ by row."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, n)
    p = 1 / (1 + np.exp(-z * sharper))
    y = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)
    return Predictions.from_probabilities(y, np.column_stack([1 - p, p]))


def sizes(values):
    codes, names = cut(values)
    return dict(zip(names, np.bincount(codes).tolist(), strict=True))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 2, 3], {"1": 1, "2": 2, "3": 1}),
        ([0.5, np.nan, 0.5], {"0.5": 2, "missing": 1}),
        ([True, False, True], {"False": 1, "True": 2}),
        (["b", None, "a", "", "b"], {"a": 1, "b": 2, "missing": 2}),
        (["missing", None], {"missing": 1, "missing (2)": 1}),
        ([np.nan, np.nan], {"missing": 2}),
        ([1.0, np.inf, 2.0], {"1": 1, "2": 1, "missing": 1}),
    ],
)
def test_values_become_groups(values, expected):
    assert sizes(values) == expected


def test_numbers_are_cut_at_quantiles():
    assert list(sizes(np.arange(1000)).values()) == [200] * 5
    skewed = np.concatenate([np.zeros(900), np.arange(1, 101)])
    assert list(sizes(skewed).values()) == [900, 100]


def test_rare_categories_are_pooled():
    values = [f"site {i}" for i in range(40) for _ in range(40 - i)]
    found = sizes(values)
    assert len(found) == 20
    assert list(found)[-1] == "other (21 categories)"
    assert found["other (21 categories)"] == sum(range(1, 22))


def test_the_group_that_is_off_is_found_and_only_that():
    n = 4000
    site = np.array(["a", "b", "c", "d"])[np.arange(n) % 4]
    judged = honest(n, 0, np.where(site == "c", 3.0, 1.0))
    (by,) = summarise({"net": judged}, groups={"site": site}, **QUICK).methods[0].by_group
    assert {group.name: group.finding for group in by.groups} == {"a": "", "b": "", "c": "over", "d": ""}
    assert by.text == 'Of 4 groups by site: over-confident in "c".'
    found = next(group for group in by.groups if group.name == "c")
    rows = site == "c"
    assert (found.rows, found.right) == (rows.sum(), judged.correct[rows].mean())
    assert found.claimed == pytest.approx(judged.confidence[rows].mean())
    assert found.ece > found.noise_floor.high


def test_twenty_groups_do_not_cry_wolf(monkeypatch):
    """Of many calibrated models, at most about one in twenty has any group with a finding."""
    monkeypatch.setattr(_groups, "RESAMPLES", 2)  # of the noise floors, which are not looked at
    alarms = 0
    for seed in range(60):
        judged = honest(1000, seed)
        groups = _groups.cut_all(
            {"site": np.random.default_rng(seed).integers(0, 20, 1000).astype(str)}, 1000
        )
        (by,) = _groups.judge_groups(judged, groups, level=0.95, seed=0)
        alarms += any(group.finding for group in by.groups)
    assert alarms <= 8


def test_groups_of_one_row_and_few_rows_are_said():
    judged = honest(31, 0)
    (by,) = summarise({"net": judged}, groups={"id": ["x"] + ["y"] * 30}, **QUICK).methods[0].by_group
    assert by.text.endswith("1 group of fewer than 30 rows could hide much.")


@pytest.mark.parametrize("values", [[1, 2], np.zeros((40, 2))])
def test_groups_of_another_length(values):
    with pytest.raises(DataError, match=r"groups\['age'\] must hold one value for each of the 40 rows"):
        summarise({"net": honest(40, 0)}, groups={"age": values})
