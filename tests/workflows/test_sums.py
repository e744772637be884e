"""Reports from sums say what reports on all rows say."""

import json

import numpy as np
import polars as pl
import pytest

from selfcal.errors import DataError
from selfcal.reporting.content import Report
from selfcal.reporting.page import render
from selfcal.workflows.evaluation import judge_parts
from selfcal.workflows.layout_search import find_layout
from selfcal.workflows.sums import Sums
from tests.metrics.truth import drawn

N = 4000


def table(dtype=pl.Float64, label=str):
    y, p, _ = drawn(N, k=3)
    names = ["a", "b", "c"] if label is str else ["0", "1", "2"]
    labels = np.array(names)[y] if label is str else y.astype(label)
    return pl.DataFrame(
        {"y": labels, **{f"prob_{name}": p[:, i] for i, name in enumerate(names)}}
    ).with_columns(pl.col("^prob_.*$").cast(dtype))


def claimed():
    """A predicted class and a confidence, sometimes below one half."""
    made = table()
    probs = made.drop("y").to_numpy()
    return pl.DataFrame(
        {
            "y": made["y"],
            "predicted": np.array(["a", "b", "c"])[probs.argmax(axis=1)],
            "confidence": probs.max(axis=1),
        }
    )


def one_column():
    made = table()
    return pl.DataFrame({"y": made["y"] == "a", "score": made["prob_a"]}).with_columns(
        pl.col("y").cast(pl.Int8)
    )


CASES = {
    "text labels": (table(), {}),
    "whole numbers": (table(label=np.int64), {}),
    "small whole numbers": (table(label=np.uint8), {}),
    "decimal numbers": (table(label=np.float64), {}),
    "float32": (table(pl.Float32), {}),
    "text probabilities": (table().cast(pl.String), {}),
    "logits": (table().with_columns(pl.col("^prob_.*$").log()), {"logits": True}),
    "percentages": (table().with_columns(pl.col("^prob_.*$") * 100), {}),
    "class and confidence": (claimed(), {}),
    "one column": (one_column(), {"positive": "1", "confidence": "score"}),
    "correct": (
        claimed().select("confidence", y=pl.col("y") == pl.col("predicted")),
        {"correct": True, "confidence": "confidence"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_report_is_that_of_all_rows(case):
    rows, options = CASES[case]
    sums = Sums(find_layout(rows.head(1000), "y", **options))
    for part in rows.iter_slices(700):
        sums.update(part)
    report = sums.report()
    expected = judge_parts([rows], "y", **options).result()
    assert (report.rows, report.classes, report.class_rows) == (N, expected.classes, expected.class_rows)
    found, whole = report.methods[0], expected.methods[0]
    assert found.judgement == whole.judgement
    for name in ("accuracy", "ece", "log_loss", "brier_score"):
        ours, theirs = getattr(found, name), getattr(whole, name)
        assert ours.value == pytest.approx(theirs.value, rel=1e-12), name
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=2e-5), name
    assert found.mean_confidence == pytest.approx(whole.mean_confidence, rel=1e-12)
    assert found.below_chance == whole.below_chance
    assert found.noise_floor.mean == pytest.approx(whole.noise_floor.mean, rel=0.1)
    assert found.verdict.rows == whole.verdict.rows
    assert found.reject.aurc == pytest.approx(whole.reject.aurc, rel=1e-3)
    for name in ("bins", "by_range"):
        for ours, theirs in zip(getattr(found, name), getattr(whole, name), strict=True):
            numbers = [vars(one) | {"finding": ""} for one in (ours, theirs)]
            assert {k: v for k, v in numbers[0].items() if k != "finding"} == pytest.approx(
                {k: v for k, v in numbers[1].items() if k != "finding"}
            )
    assert [g.code for g in found.by_class.groups] == [g.code for g in whole.by_class.groups]
    assert [g.claimed for g in found.by_class.groups] == pytest.approx(
        [g.claimed for g in whole.by_class.groups]
    )


def test_the_explorer_counts_what_each_threshold_accepts():
    rows = table()
    probs, y = rows.drop("y").to_numpy(), rows["y"].to_numpy()
    chosen = np.array(["a", "b", "c"])[probs.argmax(axis=1)]
    reject = Sums(find_layout(rows, "y")).update(rows).report().methods[0].reject
    for at, threshold in enumerate(reject.thresholds):
        accepted = probs.max(axis=1) >= threshold
        assert reject.accepted[at] == accepted.sum()
        assert reject.errors[at] == (accepted & (chosen != y)).sum()
        assert sum(sum(counts[at:]) for _, _, counts in reject.cells) == accepted.sum()
        mistaken = (y == "a") & (chosen == "b") & accepted
        assert sum(next(counts for i, j, counts in reject.cells if (i, j) == (0, 1))[at:]) == mistaken.sum()


def test_the_page_can_be_made_and_read_back():
    report = Sums(find_layout(table(), "y")).update(table()).report(title="Many", settings={"files": "3"})
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert "Many" in render(report)


def test_many_classes_have_a_page_without_a_confusion_matrix():
    y, p, _ = drawn(500, k=12)
    rows = pl.DataFrame({"y": y, **{f"prob_{i}": p[:, i] for i in range(12)}})
    report = Sums(find_layout(rows, "y")).update(rows).report()
    assert report.methods[0].reject.cells == ()
    assert "most frequent mistakes" not in render(report)


def test_a_single_row():
    rows = pl.DataFrame({"y": ["a"], "prob_a": [0.9], "prob_b": [0.1]})
    found = Sums(find_layout(rows, "y")).update(rows).report().methods[0]
    assert (found.log_loss.high, found.accuracy.value) == (None, 1.0)


def test_rows_without_labels_are_refused_or_dropped():
    rows = table().with_columns(pl.when(pl.int_range(N) != 2500).then("y").alias("y"))
    layout = find_layout(rows.head(100), "y")
    sums = Sums(layout).update(rows[:2000])
    with pytest.raises(DataError, match=r"row 2,501 has none.*--drop-unlabelled"):
        sums.update(rows[2000:])
    sums = Sums(layout, drop_unlabelled=True).update(rows)
    assert (sums.rows, sums.unlabelled) == (N - 1, 1)
    with pytest.raises(DataError, match="at least one labelled row"):
        Sums(layout, drop_unlabelled=True).update(rows.filter(pl.col("y").is_null())).report()


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64])
@pytest.mark.parametrize("wrong", [0.9, -0.5, float("nan"), None])
def test_the_first_bad_row_is_named(dtype, wrong):
    rows = table(dtype)
    rows = rows.with_columns(pl.when(pl.int_range(N) == 1234).then(wrong).otherwise("prob_b").alias("prob_b"))
    sums = Sums(find_layout(rows.head(100), "y"))
    sums.update(rows[:1000])
    with pytest.raises(DataError, match=r"row 235 is.*counted from row 1,001"):
        sums.update(rows[1000:])


def test_an_unknown_label_is_named_with_its_row():
    rows = table(label=np.int64).with_columns(
        pl.when(pl.int_range(N) == 1500).then(7).otherwise("y").alias("y")
    )
    sums = Sums(find_layout(rows.head(100), "y")).update(rows[:1000])
    with pytest.raises(DataError, match="row 1,501 is '7'"):
        sums.update(rows[1000:])
