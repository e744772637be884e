"""The benchmarks run, at a size where the numbers mean nothing."""

import math

import pytest
import torch
from benchmarks import _metric_cases, _timing, hypergradient, metrics, outer_parameters
from docs import refresh

from selfcal.datasets import Blobs


def test_best_seconds_takes_turns():
    order = []
    best = _timing.best_seconds({name: lambda name=name: order.append(name) for name in "ab"}, repeats=2)
    assert order == ["a", "b"] * 3
    assert all(0 <= seconds < 1 for seconds in best.values())


def test_sections_replace_their_namesakes(tmp_path):
    path = tmp_path / "RESULTS.md"
    for title, body in (("A", "old"), ("B", "kept"), ("A", "new")):
        _timing.write_section(path, title, body)
    text = path.read_text()
    assert "old" not in text
    assert text.index("# A") < text.index("new") < text.index("# B") < text.index("kept")
    assert f"torch {torch.__version__}" in text


def test_every_case_of_the_hypergradient_benchmark_runs(monkeypatch):
    monkeypatch.setattr(hypergradient, "peak_in_own_process", lambda *case: 1.0)
    rows = hypergradient.measure([4], [2, 3], repeats=1)
    assert {row["case"] for row in rows} == set(hypergradient.CASES)
    assert len(hypergradient.growth(rows)) == 2
    assert hypergradient.markdown(rows, hypergradient.growth(rows)).count("| 4 |") == len(rows) + 2


def test_memory_is_measured_above_what_stood_before():
    assert hypergradient.own_peak(hypergradient.PLAIN, 64, 1) < 100


@pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")  # netcal of pyro
@pytest.mark.parametrize("title", metrics.TASKS)
def test_every_case_of_the_metrics_benchmark_runs(title, monkeypatch):
    monkeypatch.setattr(metrics, "peak_in_own_process", lambda *case: 1.0)
    task = metrics.TASKS[title]
    rows, bars = metrics.measure([title], repeats=1, scale=0)
    assert {row["case"] for row in rows} == {case for case in task.cases if _metric_cases.is_installed(case)}
    assert all(math.isfinite(row["seconds"]) for row in rows)
    assert metrics.markdown(rows, bars).count(f"| {title} |") == len(rows) + len(task.bars)


@pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")  # netcal of pyro
@pytest.mark.parametrize("title", metrics.TASKS)
def test_the_cases_of_a_task_compute_the_same(title):
    task = metrics.TASKS[title]
    data = task.at(0)
    values = {case: build(data)() for case, build in task.cases.items() if _metric_cases.is_installed(case)}
    assert values == pytest.approx(dict.fromkeys(values, values[_metric_cases.OURS]), rel=1e-3, abs=1e-3)


def test_a_bar_is_met_missed_or_not_measured(monkeypatch):
    monkeypatch.setattr(metrics, "best_seconds", lambda cases, repeats: dict.fromkeys(cases, 1.0))
    monkeypatch.setattr(metrics, "peak_in_own_process", lambda *case: 50.0)
    installed = _metric_cases.is_installed
    monkeypatch.setattr(_metric_cases, "is_installed", lambda case: case != "relplot" and installed(case))
    _, bars = metrics.measure([t for t in metrics.TASKS if "ECE" in t], repeats=1, scale=0)
    verdicts = {(bar["task"].partition(",")[0], bar["unit"]): bar["verdict"] for bar in bars}
    assert verdicts == {
        ("top-label ECE", "x"): "missed",
        ("top-label ECE", "MB"): "met",
        ("classwise ECE", "x"): "met",
        ("smECE", "x"): "not measured",
        ("SECE", "s"): "met",
    }


def test_docs_are_refreshed_between_their_markers(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin: T -->\nstale\n<!-- end: T -->\nafter\n")
    results = tmp_path / "RESULTS.md"
    results.write_text("# T\n\nfresh\n")
    monkeypatch.setattr(refresh, "HERE", tmp_path)
    monkeypatch.setattr(refresh, "RESULTS", results)
    refresh.refresh()
    assert page.read_text() == "before\n<!-- begin: T -->\n\nfresh\n\n<!-- end: T -->\nafter\n"


@pytest.mark.parametrize("page", sorted(refresh.HERE.glob("*.md")), ids=lambda p: p.name)
def test_marked_places_of_the_docs_can_be_filled(page):
    titles = {found[1] for found in refresh.MARKED.findall(page.read_text())}
    reproductions = {
        f"reproduction of {paper}" for paper in ("bo4sc", "meta-regularization", "loss-functions")
    }
    assert titles <= {*refresh.sections(), *reproductions}


def test_outer_parameters_are_compared_by_seed():
    losses = {"nothing": (0.5, 0.6), "decay": (0.4, 0.52), outer_parameters.FIXED: (0.4, 0.5)}
    rows = [
        {"dataset": "d", "seed": seed, "learned": name, "log_loss": values[seed], "steps": 10 * len(name)}
        for name, values in losses.items()
        for seed in (0, 1)
    ]
    plain, decay, _ = outer_parameters.compared(rows)
    assert plain["difference"] == 0
    assert (decay["seeds"], decay["difference"]) == (2, pytest.approx(-0.09))
    assert decay["error"] == pytest.approx(0.01)
    assert decay["steps"] == pytest.approx(5 / 7)
    text = outer_parameters.report(rows, {"nothing": 1.0, "decay": 1.2, outer_parameters.FIXED: 1.1})
    assert "| nothing | 0.5500 | 0.5500 | 1.0x | 1.0x |" in text
    assert "| decay | **-90.0 ± 10.0** | -90.0 | 0.7x | 1.2x |" in text
    assert "| decay | +10.0 ± 10.0 | +10.0 | 0.2x | 1.2x |" in text


def test_every_variant_of_outer_parameters_is_a_recipe_of_its_own(monkeypatch):
    variants = outer_parameters.variants()
    assert len({repr(recipe) for recipe in variants.values()}) == len(variants)
    monkeypatch.setattr(
        outer_parameters, "rows_of", lambda *unit: (*Blobs().sample(60, seed=0), *Blobs().sample(50, seed=1))
    )
    (row,) = outer_parameters.scores_of_unit(("blobs-1.3", 0, "nothing, fixed decay 0.3", "."))
    assert math.isfinite(row["log_loss"])
    assert row["outer"]["log10_decay"] == pytest.approx([math.log10(0.3)] * 3)
