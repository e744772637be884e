"""The benchmarks run, at a size where the numbers mean nothing."""

import math
import shlex
import sys

import pytest
import torch
from docs import outputs, refresh, trial

from benchmarks import (
    _metric_cases,
    _quality_tables,
    _timing,
    cpus,
    hypergradient,
    label_audit,
    metrics,
    outer_parameters,
    tables,
)
from selfcal import __version__
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


def test_the_label_audit_benchmark_runs_on_a_set_and_on_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(label_audit, "ROWS", 60)
    monkeypatch.setattr(
        label_audit, "MODELS", dict.fromkeys(label_audit.MODELS, label_audit.MODELS["logistic"])
    )
    path = tmp_path / "tab_small.csv"
    lines = [f"{i % 7},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(90)]
    path.write_text("\n".join(["number,word,target", *lines]) + "\n")
    rows = [row for source in ("blobs-1.3", path) for row in label_audit.measure((source, 0))]
    assert len(rows) == len(label_audit.NOISE) * (3 + 2)
    assert all(0 <= row.get("ours", 0) <= 1 for row in rows)
    assert label_audit.table(rows).count("\n") == len(rows) + 1


def test_the_benchmark_of_tables_runs(tmp_path, monkeypatch):
    """Its commands are real ones; that each takes a process of its own is left out."""
    from typer.testing import CliRunner

    from selfcal.commands import app

    def inline(*args, repeats=1, code=0):
        done = CliRunner().invoke(app.app, [str(arg) for arg in args])
        assert done.exit_code == code, done.output
        return {
            "case": args[0],
            "seconds": 0.5,
            "processor": 0.25,
            "MB": 100.0,
            "code": code,
            "said": done.stderr,
        }

    monkeypatch.setattr(tables, "measured", inline)
    text = tables.markdown(tables.measure(tmp_path, 1_000, 1, fit=True), 1_000)
    assert "| predict, 1,000 rows | 0.50 | 0.25 | 2,000 | 4,000 | 100 |" in text
    assert "must fit into 0.0 GB of memory; it has about 1,000 rows" in text


@pytest.mark.slow
def test_a_command_is_measured_in_a_process_of_its_own():
    shown = tables.measured("--version", repeats=2)
    assert shown["case"] == "--version"
    assert shown["processor"] > 0
    assert 5 < shown["MB"] < 300
    with pytest.raises(RuntimeError, match="nowhere"):
        tables.measured("inspect", "nowhere")


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
    page = tmp_path / "section" / "page.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- begin: T -->\nstale\n<!-- end: T -->\nafter\n")
    results = tmp_path / "RESULTS.md"
    results.write_text("# T\n\nfresh\n")
    monkeypatch.setattr(refresh, "HERE", tmp_path)
    monkeypatch.setattr(refresh, "RESULTS", results)
    refresh.refresh()
    assert page.read_text() == "before\n<!-- begin: T -->\n\nfresh\n\n<!-- end: T -->\nafter\n"


@pytest.mark.parametrize("page", sorted(refresh.HERE.glob("[!_]*/*.md")), ids=lambda p: p.name)
def test_marked_places_of_the_docs_can_be_filled(page):
    titles = {found[1] for found in refresh.MARKED.findall(page.read_text())}
    reproductions = {
        f"reproduction of {paper}"
        for paper in ("bo4sc", "meta-regularization", "meta-regularization-narrow", "loss-functions")
    }
    commands = {title for title in titles if title.startswith((outputs.PREFIX, trial.PREFIX))}
    assert titles - commands <= {*refresh.sections(), *reproductions, *_quality_tables.sections([])}


@pytest.mark.slow
def test_outputs_of_commands_are_shown_without_paths_of_this_machine(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")
    script = "import os; print(os.getcwd()); print('x ' * 100)"
    titles = [
        "Long tables",
        f"output of {shlex.join([sys.executable, '-c', script])}",
        "output of selfcal --version",
    ]
    shown = outputs.outputs(titles, table)
    assert list(shown) == titles[1:]
    printed = shown[titles[1]].partition("```text\n")[2]
    assert printed.startswith("/home/you/patients\nx x")
    assert max(map(len, printed.splitlines())) <= 118
    assert shown[titles[2]] == f"```sh\nselfcal --version\n```\n\n```text\n{__version__}\n```"
    with pytest.raises(RuntimeError, match="nowhere"):
        outputs.outputs(["output of selfcal inspect nowhere"], table)


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


def test_models_fitted_with_two_settings_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(cpus, "METHODS", ("standard",))
    for name, max_epochs in (("native", 1), ("same", 1), ("trained longer", 2)):
        cpus.fit(tmp_path / f"{name}.npz", n=60, max_epochs=max_epochs)
    head, _, row = cpus.compare(tmp_path)
    assert head.startswith("| method | same: probability | log loss | trained longer")
    method, same_probs, same_loss, probs, loss = row.strip("| ").split(" | ")
    assert (method, same_probs, same_loss) == ("`standard`", "0e+00", "0e+00")
    assert float(probs) > 0 < float(loss)
