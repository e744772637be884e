"""The benchmarks run, at a size where the numbers mean nothing."""

import math

import pytest
import torch
from benchmarks import _metric_cases, _quality_tables, _timing, hypergradient, metrics
from docs import refresh


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
    assert titles <= {*refresh.sections(), *reproductions, *_quality_tables.sections([])}
