"""The benchmarks of uncertainty scores and prediction sets run, at a size where the numbers mean nothing."""

import gzip
from itertools import product

import numpy as np
import pytest

from benchmarks import _uncertainty_sets as sets
from benchmarks import _uncertainty_tables, coverage, uncertainty, uncertainty_cost


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


@pytest.fixture
def folder(tmp_path):
    """A table of three classes, and images of two kinds, in the form of those of the benchmark."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    lines = [
        f"{a:.3f},{b:.3f},{c}"
        for (a, b), c in zip(rng.normal(size=(150, 2)) + 3 * y[:, None], y, strict=True)
    ]
    (tmp_path / "tab_vehicle.csv.gz").write_bytes(
        gzip.compress("\n".join(["a,b,target", *lines, ""]).encode())
    )
    images, labels = rng.integers(0, 256, (60, 28, 28), dtype=np.uint8), np.arange(60) % 10
    np.savez(tmp_path / "fashion_mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    np.savez(tmp_path / sets.OTHER_IMAGES, x_test=rng.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8))
    return tmp_path


def test_a_class_is_left_out_or_other_images_are_there(folder):
    assert sets.sets_in(folder) == ["vehicle", "digits", "wine", sets.IMAGES]
    assert sets.sets_in(None) == ["digits", "wine"]
    first, second = (sets.load("vehicle", seed, folder) for seed in (0, 1))
    for task in (first, second):
        assert len(task.y) == len(task.y_test) == 50
        assert set(task.y) == set(task.y_test) == {0, 1}
        assert task.novel[sets.LEFT_OUT].shape == (50, 2)
        known = np.concatenate([task.X, task.X_test])
        assert not {*map(tuple, known)} & {*map(tuple, task.novel[sets.LEFT_OUT])}
    assert first.novel[sets.LEFT_OUT].mean() != second.novel[sets.LEFT_OUT].mean()
    task = sets.load(sets.IMAGES, 0, folder, scale=0.01)
    assert {name: X.shape for name, X in task.novel.items()} == {"CIFAR-10": (20, 784), "digits": (1797, 784)}
    assert all(0 <= X.min() < X.max() <= 1 for X in [task.X, task.X_test, *task.novel.values()])


def test_scores_and_methods_are_compared(folder, monkeypatch):
    monkeypatch.setattr(uncertainty, "METHODS", {"standard": "linear", "ensemble": "linear"})
    units = product(["vehicle"], [0, 1], uncertainty.available())
    rows = [row for unit in units for row in uncertainty.work(folder, 1.0, unit)]
    methods = {(row["set"], row["seed"], row["method"]) for row in rows if row["what"] == "method"}
    assert methods == set(product(["vehicle"], [0, 1], ["standard", "ensemble"]))
    scores = [row["score"] for row in rows if row["what"] == "novelty" and row["seed"] == 0]
    assert scores == [*uncertainty.SCORES, *uncertainty.MEMBER_SCORES]
    found = _uncertainty_tables.sections(rows, {"standard": 10.0, "ensemble": 20.0})
    novelty, errors, probabilities = found.values()
    for label in [*uncertainty.SCORES, *(f"{name}, ensemble" for name in uncertainty.MEMBER_SCORES)]:
        assert f"\n| {label} | " in novelty
        assert f"\n| {label} | " in errors
    assert "| `ensemble` | " in probabilities
    assert probabilities.rstrip().endswith((" | 10 |", " | 20 |"))
    assert {type(score) for score in [*uncertainty.SCORES.values(), *uncertainty.MEMBER_SCORES.values()]} == {
        *uncertainty_cost.family().values()
    }


def test_separation_by_hand():
    """Of three novel rows, one is above two usual rows only; 95% of three is all of them."""
    found = uncertainty.separation(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.5, 5.0, 6.0]))
    assert found == pytest.approx({"auroc": 10 / 12, "false_alarms": 0.5, "found": 2 / 3})


def test_rows_of_a_table_are_ranked_and_compared():
    values = _uncertainty_tables.Values(more_is_better=True)
    for seed, (good, bad) in enumerate([(0.9, 0.5), (0.91, 0.52), (0.92, 0.55)]):
        for column in "ab":
            values.add("good", column, seed, good)
            values.add("bad", column, seed, bad)
    values.add("partial", "a", 0, 0.99)
    assert values.ranks() == {"good": 1.0, "bad": 2.0}
    assert (values.beside("good", "bad"), values.beside("bad", "good")) == ("2 / 0 / 0", "0 / 0 / 2")
    assert values.beside("bad", "bad") == values.cell("partial", "b", 2) == ""
    assert values.cell("partial", "a", 2) == "**0.99**"
    assert values.cell("good", "b", 3) == "**0.910 ± 0.006**"
