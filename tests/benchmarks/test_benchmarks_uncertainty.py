"""The benchmarks of uncertainty scores and prediction sets run, at a size where the numbers mean nothing."""

import pytest

from benchmarks import coverage, uncertainty_cost


def test_every_uncertainty_score_is_timed_beside_the_network(monkeypatch):
    monkeypatch.setattr(uncertainty_cost, "NETWORK_ROWS", 200)
    rows = list(uncertainty_cost.measure(3, repeats=1, scale=0.002))
    assert [row["case"] for row in rows] == [uncertainty_cost.NETWORK, *uncertainty_cost.family()]
    assert all(row["seconds"] > 0 for row in rows)
    assert {row["case"] for row in rows if row["met"] is None} == {
        uncertainty_cost.NETWORK,
        *uncertainty_cost.WITHOUT_LIMIT,
    }
    slow = [row | {"met": row["case"] != "Entropy"} for row in rows]
    large = [{"case": name, "peak_mb": 10.0, "met": name != "TrustScore"} for name in uncertainty_cost.MEMORY]
    text = uncertainty_cost.markdown(slow, large)
    assert all(f"| {row['case']} | " in text for row in [*rows, *large])
    assert text.endswith("missed by Entropy with 3 classes, TrustScore.")


@pytest.mark.parametrize("name", uncertainty_cost.MEMORY)
def test_the_memory_of_scores_is_measured(name):
    assert uncertainty_cost.own_peak(name, scale=0.003) < 300


def test_coverages_are_counted_for_every_setting():
    rows = [row for world in coverage.WORLDS for row in coverage.measure(30, 3, world)]
    settings = 3 * len(coverage.SCORES) * 2 * len(coverage.LEVELS)
    assert len(rows) == len(coverage.WORLDS) * settings
    assert {len(row["parts"]) for row in rows} == {1, 2, 4, 5}
    assert all(0 <= part["coverage"] <= 1 for row in rows for part in row["parts"])
    text = coverage.markdown(rows, 3)
    assert text.count("±") == len(rows) + 1
    assert "- split, randomised:" in text
