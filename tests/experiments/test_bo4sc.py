"""The whole experiment at a size for a test: every output, its honesty, and its repeatability."""

import json

import numpy as np
import pytest

from selfcal.calibrators import IsotonicConfidence
from selfcal.errors import ConfigError
from selfcal.experiments import bo4sc


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(bo4sc, "EPOCHS", 20)
    monkeypatch.setattr(bo4sc, "LEARNING_RATES", (0.01,))
    monkeypatch.setattr(bo4sc, "TUNING_REPEATS", 1)
    monkeypatch.setattr(bo4sc, "LARGE_TEST", 2000)
    bo4sc._large_test.cache_clear()
    yield
    bo4sc._large_test.cache_clear()


def test_split_is_the_papers():
    parts = bo4sc.paper_split("spiral-2.5", seed=1)
    assert [len(part.y) for part in parts] == [700, 300, 1000]


def test_unit_has_every_method_and_metric(quick):
    rows = bo4sc.run_unit(("blobs-1.7", 0))
    assert [row["method"] for row in rows] == list(bo4sc.METHODS)
    by_method = {row["method"]: row for row in rows}
    assert by_method["standard"]["accuracy"] == by_method["isoreg"]["accuracy"]
    assert by_method["oracle"]["calibration_error"] == pytest.approx(0, abs=1e-12)
    assert by_method["oracle"]["log_loss_100k"] < min(
        row["log_loss_100k"] for row in rows if row["method"] != "oracle"
    )
    assert by_method["bo4sc"]["settings"].keys() == {"learning_rate", "steps", "outer_lr"}
    assert json.loads(json.dumps(rows)) == rows
    assert bo4sc.run_unit(("blobs-1.7", 0)) == rows


def test_the_first_seed_writes_a_report(quick, tmp_path):
    bo4sc.run_unit(("bac", 0), pages=tmp_path)
    bo4sc.run_unit(("bac", 1), pages=tmp_path / "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bac.html", "bac.json", "bac_model_card.md"]
    numbers = json.loads((tmp_path / "bac.json").read_text())
    assert [method["name"] for method in numbers["methods"]] == list(bo4sc.METHODS.values())
    assert numbers["rows"] == 2000


def test_isoreg_calibrates_on_validation_rows_only(quick):
    parts = bo4sc.paper_split("blobs-1.7", 0)
    clf = bo4sc.FITTED["isoreg"](parts, 0)
    expected = IsotonicConfidence().fit(clf.logits(parts.validation.X), parts.validation.y)
    logits = clf.logits(parts.test.X)
    np.testing.assert_allclose(clf.confidence(parts.test.X), expected.confidence(logits), atol=1e-6)


def test_figures_are_those_of_the_data_sets_asked_for(quick, monkeypatch):
    monkeypatch.setattr(bo4sc, "OUTER_LEARNING_RATES", (0.01,))
    assert sorted(bo4sc.figures(["blobs-1.7"])) == ["figure-1-confidence", "figure-3-weights"]
    assert sorted(bo4sc.figures(["spiral-3.5"])) == ["figure-2-reliability"]
    assert bo4sc.figures(["bac"]) == {}


def test_figures_that_are_there_are_not_drawn_again(tmp_path):
    for name in bo4sc.FIGURES:
        (tmp_path / f"{name}.png").touch()
    assert bo4sc.figures(["blobs-1.7", "spiral-3.5"], tmp_path) == {}


def test_unknown_data_set(tmp_path):
    with pytest.raises(ConfigError, match=r"Did you mean 'blobs-1\.7'"):
        bo4sc.reproduce(tmp_path, only=["blobs1.7"])
