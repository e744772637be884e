"""The quality benchmark at a size where its numbers mean nothing, and what is made of them where they are known."""

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from types import ModuleType

import joblib
import numpy as np
import polars as pl
import pytest
from benchmarks._quality_board import Board, Ranking, critical_difference, ranking, ranks_of
from benchmarks._quality_picture import rank_figure
from benchmarks._quality_targets import targets
from docs import refresh
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neural_network import MLPClassifier

from benchmarks import _quality_methods as methods
from benchmarks import _quality_sets as sets
from benchmarks import _quality_tables as tables
from benchmarks import quality
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.preprocessing import Preprocessor

SMALL = 0.05
RESULTS_PAGE = (refresh.HERE / "results" / "quality.md").read_text()


@pytest.fixture
def folder(tmp_path):
    """A folder with one table: numbers, some missing, categories, and the label last."""
    rng = np.random.default_rng(0)
    n = 200
    label = rng.integers(0, 3, n)
    colour = np.where(rng.random(n) < 0.75, label, rng.integers(0, 3, n))
    size = [
        None if missing else float(v)
        for v, missing in zip(rng.normal(size=n), rng.random(n) < 0.1, strict=True)
    ]
    table = pl.DataFrame(
        {"size": size, "colour": [f"c{c}" for c in colour], "kind": [f"k{k}" for k in label]}
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tab_tiny.csv.gz").write_bytes(gzip.compress(table.write_csv().encode()))
    return tmp_path / "data"


@pytest.fixture
def in_threads():
    """Workers that need no start-up."""
    with joblib.parallel_config("threading"):
        yield


@pytest.mark.parametrize("name", sets.generated_sets())
def test_generated_tasks_are_the_same_for_every_method_and_differ_by_seed(name):
    task, again, other = (sets.load(name, seed, 0.0, None, SMALL) for seed in (1, 1, 2))
    np.testing.assert_array_equal(task.X, again.X)
    assert not np.array_equal(task.X, other.X)
    assert len(task.X) == 50
    assert task.posterior.shape == (5000, task.n_classes)
    np.testing.assert_allclose(task.X.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_wrong_labels_are_wrong_spread_evenly_and_leave_the_test_rows_alone(share):
    clean, noisy = (sets.load("blobs-1.7", 0, noise, None) for noise in (0.0, share))
    assert noisy.wrong.sum() == share * 1000
    np.testing.assert_array_equal(noisy.y != clean.y, noisy.wrong)
    np.testing.assert_array_equal(noisy.y_test, clean.y_test)
    steps = np.bincount((noisy.y - clean.y)[noisy.wrong] % clean.n_classes, minlength=clean.n_classes)
    assert steps[0] == 0
    expected = share * 1000 / (clean.n_classes - 1)
    assert np.abs(steps[1:] - expected).max() < 5 * np.sqrt(expected)


def test_a_table_is_encoded_from_its_training_rows(folder):
    assert sets.sets_in(folder) == [*sets.generated_sets(), "tiny"]
    task = sets.load("tiny", 0, 0.0, folder)
    assert (task.X.shape, task.X_test.shape, task.n_classes) == ((120, 5), (80, 5), 3)
    np.testing.assert_allclose(task.X[:, 0].mean(), 0, atol=1e-12)
    assert abs(task.X_test[:, 0].mean()) > 1e-6
    np.testing.assert_allclose(np.bincount(task.y) / 120, np.bincount(task.y_test) / 80, atol=0.02)


def test_a_table_is_also_given_with_its_categories_and_gaps(folder):
    task = sets.load("tiny", 0, 0.0, folder)
    size, colour = (task.table[name] for name in task.table.columns)
    np.testing.assert_array_equal(size.isna(), task.X[:, 1])
    np.testing.assert_array_equal(size.fillna(0.0), task.X[:, 0])
    assert list(colour.cat.categories) == ["c0", "c1", "c2"]
    np.testing.assert_array_equal(np.eye(3)[colour.cat.codes], task.X[:, 2:])
    assert task.table_test.dtypes.equals(task.table.dtypes)


def test_categories_that_are_missing_or_were_never_seen_are_missing():
    table = pl.DataFrame({"n": ["1", "2", "4"], "a": ["x", None, "y"], "b": ["u", "v", "u"]})
    encoder = Preprocessor().fit(table, infer_schema(table))
    test = encoder.transform(pl.DataFrame({"n": ["2"] * 3, "a": ["y", "z", None], "b": ["w", "v", "u"]}))
    found = sets.columns_of(encoder, test)
    assert [["", *"xy"][code + 1] for code in found["column 1"].cat.codes] == ["y", "", ""]
    assert [["", *"uv"][code + 1] for code in found["column 2"].cat.codes] == ["", "v", "u"]
    assert sets.load("bac", 0, 0.0, None, SMALL).table.to_numpy().shape[0] == 50


def test_unknown_sets_and_folders_are_refused(folder):
    with pytest.raises(ConfigError, match="tinny"):
        sets.load("tinny", 0, 0.0, folder)
    with pytest.raises(ConfigError, match=r"there is no .*nowhere"):
        sets.sets_in(folder / "nowhere")


def test_cells_are_those_that_make_sense_with_clean_labels_and_low_seeds_first():
    units = quality.cells(["bac", "tiny", sets.IMAGES], ["oracle", *methods.METHODS], [0.0, 0.4], None)
    found = set(units)
    assert {name for name, _, _, m in units if m == "oracle"} == {"bac"}
    assert {noise for _, noise, _, m in units if m == "cleanlab"} == {0.4}
    assert {name for name, _, _, m in units if m == "sklearn-hgb"} == {"bac", "tiny"}
    assert {name: max(s for n, _, s, _ in found if n == name) for name in ("bac", "tiny")} == {
        "bac": 9,
        "tiny": 4,
    }
    assert [unit[1:3] for unit in units] == sorted(unit[1:3] for unit in units)
    assert len(quality.cells(["bac"], ["standard"], [0.0], 3)) == 3
    assert [seed for _, _, seed, _ in quality.cells(["bac"], ["standard"], [0.0], 2, 100)] == [100, 101]


def test_fast_runs_a_part_of_the_same_cells_unless_something_else_is_asked_for(folder, monkeypatch):
    monkeypatch.setattr(quality, "available", list)

    def asked(*options):
        ask = ["--json", "x.json", "--data", str(folder), *options]
        return set(quality.asked_cells(quality.options().parse_args(ask)))

    fast = asked("--fast")
    assert fast < asked()
    assert {name for name, *_ in fast} == {"blobs-1.7", "spiral-2.5"}
    assert {unit[-1] for unit in fast} == set(quality.FAST["methods"])
    table = asked("--fast", "--sets", "tiny", "--first-seed", "100")
    assert table == {("tiny", 0.0, seed, m) for seed in (100, 101) for m in quality.FAST["methods"][1:]}


def test_sets_and_methods_of_the_fast_run_exist():
    assert set(quality.FAST["methods"]) <= {"oracle", *methods.METHODS}
    assert {name for name in quality.FAST["sets"] if sets.kind_of(name) == "generated"}


def test_seeds_for_development_and_for_reports_share_a_file_and_no_page(
    tmp_path, monkeypatch, capsys, in_threads
):
    ask = ["--json", str(tmp_path / "q.json"), "--sets", "bac", "--noise", "0", "--scale", str(SMALL)]
    for first in ("0", "100"):
        quality.main([*ask, "--methods", "oracle", "temperature", "--seeds", "1", "--first-seed", first])
        assert "| early-stopped + temperature | 1 |" in capsys.readouterr().out
    rows = json.loads((tmp_path / "q.json").read_text())["rows"]
    assert [row["seed"] for row in rows] == [0, 0, 100, 100]
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr(refresh, "HERE", tmp_path)
    found, expected = refresh.quality(rows), tables.sections(rows[:2])
    assert found == {title: text for title, text in expected.items() if text != tables.NOTHING}
    assert "Quality: wrong labels" in expected.keys() - found.keys()


def test_a_run_goes_on_where_it_stood_and_tries_failures_again(tmp_path, monkeypatch, capsys, in_threads):
    file, fitted = tmp_path / "quality.json", []

    def fit(X, y, seed, groups):
        fitted.append(seed)
        if seed == 1 and len(fitted) < 4:
            raise ValueError("no luck")
        return methods.Ours("standard", settings={"max_epochs": 2})(X, y, seed)

    monkeypatch.setitem(methods.METHODS, "standard", replace(methods.METHODS["standard"], fit=fit))
    ask = ["--json", str(file), "--sets", "blobs-1.3", "--noise", "0", "--scale", str(SMALL), "--methods"]
    quality.main([*ask, "oracle", "standard", "--seeds", "2"])
    rows = {(r["method"], r["seed"]): r for r in json.loads(file.read_text())["rows"]}
    assert rows["standard", 1]["failed"] == "ValueError: no luck"
    assert rows["oracle", 0]["noise_free_error"] == 0
    assert rows["oracle", 0]["log_loss"] < rows["standard", 0]["log_loss"]
    shown = capsys.readouterr()
    assert "1 of 4 cells failed" in shown.err
    assert "ValueError: no luck" in shown.out

    quality.main([*ask, "standard", "--seeds", "3"])
    assert fitted == [0, 1, 2]
    quality.main([*ask, "standard", "--seeds", "3", "--retry"])
    assert fitted == [0, 1, 2, 1]
    assert [r["failed"] for r in json.loads(file.read_text())["rows"]] == [None] * 5
    quality.main([*ask, "standard", "--seeds", "1", "--again", "standard"])
    assert fitted == [0, 1, 2, 1, 0]


HOLDS = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
)


@pytest.mark.skipif(os.name != "posix", reason="locks are of POSIX")
def test_two_runs_cannot_share_a_file(tmp_path):
    file, lock = tmp_path / "quality.json", tmp_path / ".quality.json.lock" / ".lock"
    lock.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(ConfigError, match="is in use"):
            quality.main(["--json", str(file), "--sets", "bac", "--methods", "oracle"])
        other.stdin.close()
    assert not file.exists()


def test_what_cannot_be_run_here_is_left_out_with_a_line(monkeypatch, capsys):
    monkeypatch.setitem(methods.METHODS, "standard", methods.ours("new", "not-yet", depth=3))
    monkeypatch.setitem(methods.METHODS, "bo4sc", methods.Method("peer", print, needs=("no_such_module",)))
    assert quality.available(["oracle", "temperature", "standard", "bo4sc"]) == ["oracle", "temperature"]
    lines = capsys.readouterr().err.splitlines()
    assert "standard is left out" in lines[0]
    assert "not-yet" in lines[0]
    assert lines[1] == "bo4sc is left out: no_such_module cannot be imported"


@pytest.mark.parametrize("noise", ["-0.1", "1", "nan"])
def test_shares_of_wrong_labels_are_checked(noise, capsys):
    with pytest.raises(SystemExit):
        quality.main(["--json", "x.json", "--noise", noise])
    assert "must be a fraction" in capsys.readouterr().err


def test_calibrated_peers_choose_their_settings_by_log_loss():
    task = sets.load("blobs-1.3", 0, 0.0, None, 0.2)
    peer = methods.Calibrated(MLPClassifier(max_iter=30), [{"learning_rate_init": [1e-9, 0.05]}])
    search = peer(task.X, task.y, 0)
    assert search.best_params_ == {"estimator__learning_rate_init": 0.05, "estimator__random_state": 0}
    np.testing.assert_array_equal(
        search.predict_proba(task.X_test), peer(task.X, task.y, 0).predict_proba(task.X_test)
    )


def test_the_filter_drops_what_it_is_told_to_and_knows_how_sure_it_was(monkeypatch):
    task = sets.load("blobs-1.3", 0, 0.4, None, 0.2)
    seen = []

    def train(X, y, seed):
        seen.append(len(y))
        return methods.Ours("standard", settings={"max_epochs": 30})(X, y, seed)

    def of_label(y, probs):
        return probs[np.arange(len(y)), y]

    for name, content in {
        "cleanlab": {},
        "cleanlab.filter": {"find_label_issues": lambda y, probs, n_jobs: of_label(y, probs) < 0.1},
        "cleanlab.rank": {"get_label_quality_scores": of_label},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    model = methods.Filtered(train)(task.X, task.y, 0)
    suspect = methods.suspicion(model, task)
    assert seen[:-1] == [160] * 5
    assert seen[-1] == 200 - (1 - suspect < 0.1).sum() < 200
    assert suspect[task.wrong].mean() > suspect[~task.wrong].mean()
    assert methods.probabilities(model, task.X_test, task.n_classes).shape == (len(task.X_test), 5)
    with pytest.raises(DataError, match="one score per training row"):
        methods.suspicion(model, replace(task, y=task.y[:10]))


def test_probabilities_have_a_column_for_classes_never_seen():
    class Fitted:
        classes_ = np.array([0, 2])

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5, dtype=np.float32)

    np.testing.assert_array_equal(methods.probabilities(Fitted(), np.zeros((1, 1)), 4), [[0.5, 0, 0.5, 0]])


def rows_of(values, *, noise=0.0, name="bac", **more):
    """Rows with these log losses by method and seed."""
    return [
        {"set": name, "noise": noise, "seed": seed, "method": m, "failed": None, "log_loss": v}
        | {score: of[m] for score, of in more.items()}
        for m, losses in values.items()
        for seed, v in enumerate(losses)
    ]


def test_gaps_are_paired_over_the_seeds_both_have():
    board = Board(rows_of({"auto": [0.1, 0.3], "temperature": [0.2, 0.5, 9.0]}))
    gap = board.gap("log_loss", 0.0, "bac", "auto", "temperature")
    assert (gap.mean, gap.error, gap.seeds) == (pytest.approx(-0.15), pytest.approx(0.05), 2)
    assert gap.clear
    assert board.gap("log_loss", 0.0, "bac", "auto", "ensemble") is None
    single = Board(rows_of({"auto": [0.1], "temperature": [0.2]}))
    assert not single.gap("log_loss", 0.0, "bac", "auto", "temperature").clear


def test_the_share_closed_is_that_of_the_mean_over_sets():
    rows = rows_of({"auto": [0.4], "temperature": [0.5], "oracle": [0.3]})
    rows += rows_of({"auto": [0.6], "temperature": [0.7], "oracle": [0.1]}, name="blobs-1.3")
    board = Board(rows)
    assert board.share_closed(0.0, ["bac"], "auto") == (pytest.approx(0.5), 1)
    assert board.share_closed(0.0, ["bac", "blobs-1.3", "spiral-2.5"], "auto") == (
        pytest.approx(0.2 / 0.8),
        2,
    )
    assert board.share_closed(0.0, ["spiral-2.5"], "auto")[1] == 0
    assert board.share_closed(0.0, ["bac"], "temperature", "auto") == (pytest.approx(-1.0), 1)


def test_critical_differences_are_those_of_the_paper():
    """Demšar (2006), table 5 and the example of section 3.2.2 with four classifiers and fourteen sets."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    for k, q in {2: 1.960, 5: 2.728, 10: 3.164}.items():
        assert critical_difference(k, 1) == pytest.approx(q * np.sqrt(k * (k + 1) / 6), rel=1e-3)


def test_ties_share_their_rank():
    np.testing.assert_allclose(ranks_of(np.array([[0.1, 0.2, 0.2], [0.3, 0.1, 0.2]])), [2.0, 1.75, 2.25])


def test_ranks_are_over_the_sets_and_seeds_that_all_have():
    rows = [
        *rows_of({"auto": [0.1, 9.0], "temperature": [0.2], "standard": [0.3]}, name="bac"),
        *rows_of({"auto": [0.1], "temperature": [0.2], "standard": [0.15]}, name="blobs-1.3"),
        *rows_of({"auto": [0.1], "standard": [0.1], "ensemble": [0.0]}, name="letter"),
        *rows_of({"auto": [0.1], "temperature": [0.05], "standard": [0.1]}, name="spam", noise=0.4),
    ]
    ranked = ranking(Board(rows), 0.0)
    assert ranked.ranks == {"auto": 1.0, "temperature": 2.5, "standard": 2.5}
    assert (ranked.sets, ranked.left_out) == (["blobs-1.3", "bac"], ["ensemble"])
    assert ranking(Board([]), 0.0).ranks == {}


@given(st.lists(st.floats(1, 8), min_size=2, max_size=8, unique=True).map(sorted), st.floats(0.01, 5))
def test_groups_are_the_largest_runs_within_the_critical_difference(places, critical):
    found = Ranking(dict(zip("abcdefgh", places, strict=False)), [], [], 0.0, critical).groups()
    alike = [
        set("abcdefgh"[i : j + 1])
        for i, j in combinations(range(len(places)), 2)
        if places[j] - places[i] <= critical
    ]
    assert [set(group) for group in found] == [a for a in alike if not any(a < b for b in alike)]


def all_rows(gain):
    """Every method on every kind of set; `auto` is that much better than all others."""
    rng = np.random.default_rng(0)
    rows = []
    names = [*sets.generated_sets(), *(f"t{i}" for i in range(11)), sets.IMAGES]
    for name, noise, seed, method in quality.cells(names, ["oracle", *methods.METHODS], quality.NOISE, 3):
        better = {"auto": gain, "auto-told": gain, "oracle": 0.2}.get(method, 0.0)
        loss = 0.5 - better + 0.001 * rng.normal()
        row = {"set": name, "noise": noise, "seed": seed, "method": method, "failed": None, "log_loss": loss}
        row |= {"accuracy": 0.8 + better / 2, "brier": loss / 2, "smooth_ece": 0.02, "aurc": 0.1}
        if method != "oracle":
            row |= {"seconds": 2.0, "wall_seconds": 50.0 - 100 * better}
        if noise and method in ("auto", "auto-told", "cleanlab"):
            row["audit_auc"] = 0.9 + better / 2
        if sets.kind_of(name) == "generated":
            row["noise_free_error"] = 0.05 - better / 4
        rows.append(row)
    return rows


@pytest.mark.parametrize(("gain", "met"), [(0.15, True), (-0.15, False)])
def test_targets_follow_the_numbers(gain, met):
    found = targets(Board(all_rows(gain)))
    assert len(found) == 24
    assert {target.met for target in found} == {met}
    assert all(("met" if met else "missed") in str(target) for target in found)


def test_targets_say_what_was_not_measured():
    rows = all_rows(0.15)
    assert {t.met for t in targets(Board([]))} == {None}
    without = [r for r in rows if not (r["method"] == "realmlp" and r["set"] != "t3")]
    lower, not_higher = (str(t) for t in targets(Board(without)) if "RealMLP" in t.text)
    assert "on 1 of 1 sets, at least 1 wanted; 10 more sets are not measured; met" in lower
    assert "on 1 of 1 sets, at least 0 wanted; 10 more sets are not measured; met" in not_higher


def test_one_table_may_be_clearly_worse_and_three_less_accurate():
    rows = all_rows(0.15)

    def verdicts(worse, less_accurate):
        changed = [
            row
            | {"log_loss": row["log_loss"] + (row["set"] in worse and row["method"] == "auto")}
            | {"accuracy": row["accuracy"] + 0.2 * (row["set"] in less_accurate and row["method"] == "tabm")}
            for row in rows
        ]
        found = targets(Board(changed))
        higher = next(t for t in found if "no clearly higher log loss than CatBoost" in t.text)
        return higher.met, next(t for t in found if "the best of these peers" in t.text).met

    assert verdicts(["t1"], ["t1", "t2", "t3"]) == (True, True)
    assert verdicts(["t1", "t2"], ["t1", "t2", "t3", "t4"]) == (False, False)


def test_the_page_is_made_from_the_files(tmp_path, monkeypatch):
    rows = all_rows(0.15)
    rows[3] |= {"failed": "ValueError: a `b`\n| c"}
    pages, run, other = (tmp_path / name for name in ("docs", "quality.json", "more.json"))
    (pages / "figures").mkdir(parents=True)
    (pages / "results").mkdir()
    (pages / "results" / "quality.md").write_text(RESULTS_PAGE)
    (tmp_path / "README.md").write_text(
        "<!-- begin: Quality: headline -->\n<!-- end: Quality: headline -->\n"
    )
    for file, part in ((run, rows[:100]), (other, rows[100:])):
        file.write_text(json.dumps({"settings": quality.protocol(), "rows": part}))
    monkeypatch.setattr(refresh, "HERE", pages)
    refresh.refresh(run, other)
    page = (pages / "results" / "quality.md").read_text()
    assert "Not measured" not in page
    assert "`ValueError: a 'b' | c`" in page
    assert "](../figures/quality-ranks.png)" in page
    assert [p.name for p in (pages / "figures").iterdir()] == ["quality-ranks.png"]
    assert "| auto |" in (tmp_path / "README.md").read_text()
    tables_found = re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE)
    assert len(tables_found) > 30
    for table in tables_found:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_the_sections_are_those_of_the_page():
    assert set(tables.sections([])) == set(re.findall("<!-- begin: (Quality: .+?) -->", RESULTS_PAGE))
    assert tables.picture([]) is None
    assert set(tables.sections([]).values()) >= {tables.NOTHING}


def test_the_picture_names_every_method_by_its_mean_rank():
    ranked = Ranking({"auto": 1.25, "temperature": 1.75, "standard": 3.0}, ["bac"], [], 0.01, 0.9)
    texts = [text.get_text() for text in rank_figure(ranked, methods.LABELS, "auto").axes[0].texts]
    assert "auto  1.25" in texts
    assert "early-stopped  3.00" in texts
    assert "critical difference 0.90" in texts
