import html
import json
import re
import signal

import polars as pl
import pytest
import skops.io

from selfcal import errors, recipes
from selfcal._support import progress
from selfcal._support.locks import locked
from selfcal.commands import fit as fit_module
from selfcal.commands._shared import half_the_memory
from selfcal.storage import describe, read_extra
from selfcal.training.run import Run
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import QUICK, as_json, people, quick, run, succeed


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_model_folder_is_complete_and_nothing_else_is_left(shelf):
    assert files(shelf / "people-model") == [
        "model.json",
        "model.safetensors",
        "model_card.md",
        "preprocessor.skops",
        "report.html",
        "report.json",
    ]
    assert files(shelf) == ["people-model", "people.csv", "predictions.csv"]
    said = describe(shelf / "people-model")
    assert said["classes"]["values"] == ["k0", "k1", "k2"]
    assert said["metrics"]["held_out_rows"] == 32
    assert said["settings"]["checkpoint_dir"] is None  # no path of this machine in a model
    data = read_extra(shelf / "people-model", "preprocessor.skops")
    assert skops.io.get_untrusted_types(data=data) == []


def test_what_was_found_is_said_before_the_verdict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people().with_columns(one=pl.lit("same")).write_csv("people.csv")
    result = succeed("fit", "people.csv", "--target", "kind", *QUICK)
    assert result.stdout.index("colour  category") < result.stdout.index("Verdict:")
    assert "note: Column 'one' is dropped" in result.stderr
    page = html.unescape((tmp_path / "people-model" / "report.html").read_text())
    assert "Column 'one' is dropped" in page
    assert "people-model/report.html" in result.stdout


def test_json_is_all_there_is_on_standard_output(shelf, tmp_path):
    data = (shelf / "people.csv").read_bytes()
    result = run("fit", "-", "--target", "kind", "--out", tmp_path / "m", "--json", *QUICK, input=data)
    numbers = json.loads(result.stdout)
    assert numbers["classes"] == ["k0", "k1", "k2"]
    assert numbers["report_numbers"]["rows"] == 32


def test_settings_of_the_selection(shelf, tmp_path):
    args = ["fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "m", "--max-epochs", "2"]
    said = succeed(*args, "--time-budget", "1e-3", "--one-network", "--noisy-labels")
    assert said.stderr.count("note: One network was distilled from the ensemble") == 1
    assert said.stderr.count("note: The model predicts true labels but is evaluated on the given labels") == 1
    said = describe(tmp_path / "m")["settings"]
    assert (said["time_budget"], said["n_networks"], said["noisy_labels"]) == (1e-3, 1, True)
    page = html.unescape((tmp_path / "m" / "report.html").read_text())
    assert re.search(
        r"estimated cost of [+-]\d\.\d+ in log loss \(standard error \d\.\d+\): \d\.\d+ instead", page
    )
    assert re.search(
        r"measured on \d+ rows that a network and an ensemble trained on the other \d+ have not seen", page
    )
    assert "The model predicts true labels" in page
    assert "not trained: the time budget was used up" in page


def test_settings_of_a_selection_without_candidates(shelf, tmp_path):
    for option in ("--one-network", "--noisy-labels"):
        result = run("fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "m", option, *QUICK)
        assert result.exit_code == 2
        assert "is for methods that train several networks, such as 'auto'; got it with" in result.stderr
        assert files(tmp_path) == []


@pytest.fixture
def struck(monkeypatch):
    """Runs a command, and strikes it with SIGINT in the middle of a step."""

    def run_struck(at, *args):
        advance, steps = Run.advance, []

        def advance_struck(self):
            steps.append(1)
            if len(steps) == at:
                signal.raise_signal(signal.SIGINT)
            return advance(self)

        with monkeypatch.context() as patched:
            patched.setattr(Run, "advance", advance_struck)
            return run(*args)

    return run_struck


def test_the_default_method_from_fit_to_report(shelf, tmp_path, struck):
    """Several kinds of network are candidates; what was tried is told wherever the model is.

    Interrupted in the training of the second kind, it goes on to the very same bytes.
    """
    args = ["fit", shelf / "people.csv", "--target", "kind", "--max-epochs", "4", "--out"]
    succeed(*args, tmp_path / "first")
    assert struck(6, *args, tmp_path / "second").exit_code == 130
    succeed(*args, tmp_path / "second", "--resume")
    for name in ("model.safetensors", "model.json", "report.html"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    tried = describe(tmp_path / "first")["selection"]
    assert {record["network"] for record in tried} == {
        candidate.name for candidate in recipes.auto().candidates
    }
    shown = succeed("inspect", tmp_path / "first").stdout
    page = html.unescape((tmp_path / "first" / "report.html").read_text())
    for record in tried:
        line = f"weight {record['weight']:.0%}; out-of-fold log loss {record['out_of_fold_log_loss']:.4f}"
        for text in (shown, page):
            assert line in text
            assert f"candidate '{record['network']}'" in text
    assert re.search(r"network +5 inputs, (pool of \d+ kinds: )?ensemble of \d+ models", shown)
    assert "rows for cross-fitting" in page
    succeed("predict", tmp_path / "first", shelf / "people.csv", "--out", tmp_path / "p.csv")
    assert pl.read_csv(tmp_path / "p.csv").height == 160


def test_the_same_seed_gives_the_same_bytes(shelf, tmp_path):
    succeed("fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "again", *QUICK)
    for name in ("model.safetensors", "model.json", "report.html"):
        assert (tmp_path / "again" / name).read_bytes() == (shelf / "people-model" / name).read_bytes()


def test_a_kind_may_be_declared(shelf, tmp_path):
    args = ["--target", "kind", "--kind", "weight=drop", "--out", tmp_path / "m", *QUICK]
    numbers = as_json("fit", shelf / "people.csv", *args)
    assert {c["name"]: c["kind"] for c in numbers["schema"]["columns"]}["weight"] == "drop"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--target", "knd"], 3, "Did you mean 'kind'?"),
        (["--target", "kind", "--method", "bo4cs"], 2, "Did you mean 'bo4sc'?"),
        (["--target", "kind", "--kind", "weight"], 2, "--kind must be NAME=VALUE"),
        (["--target", "kind", "--kind", "weight=numer"], 2, "Did you mean 'number'?"),
        (["--target", "kind", "--sep", ";"], 3, "may mean another separator"),
        (["--target", "kind", "--held-out", "2"], 2, "--held-out must be"),
    ],
)
def test_mistakes_leave_nothing_behind(shelf, tmp_path, args, code, message):
    result = run("fit", shelf / "people.csv", "--out", tmp_path / "model", *args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_things_is_refused_before_training(shelf, tmp_path, monkeypatch):
    (tmp_path / "thesis.tex").write_text("years of work")
    monkeypatch.setattr(TableModel, "fit", lambda *_, **__: pytest.fail("trained for nothing"))
    result = run("fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path)
    assert result.exit_code == 2
    assert "thesis.tex" in result.stderr


def test_an_interrupted_training_goes_on_to_the_same_model(shelf, tmp_path, struck):
    """SIGINT in the middle of a step: exit 130, nothing lost, and --resume ends in the very same bytes."""
    args = ["fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK]
    result = struck(4, *args)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1].startswith(
        "Stopped; nothing is lost. Add --resume to the same command"
    )
    assert files(tmp_path) == [".m.training"]
    again = run(*args)
    assert again.exit_code == 2
    assert "Add --resume to continue it" in again.stderr
    other = run(*args, "--resume", "--seed", "5")
    assert other.exit_code == 5
    assert "belongs to another run" in other.stderr
    succeed(*args, "--resume")
    assert files(tmp_path) == ["m"]
    for name in files(tmp_path / "m"):
        assert (tmp_path / "m" / name).read_bytes() == (shelf / "people-model" / name).read_bytes(), name


@pytest.fixture(scope="module")
def refitted(shelf, tmp_path_factory):
    """A refitted model of `people.csv`, and what was said about it."""
    folder = tmp_path_factory.mktemp("refitted") / "m"
    return folder, succeed(
        "fit", shelf / "people.csv", "--target", "kind", *QUICK, "--out", folder, "--refit"
    )


def test_a_refit_is_mentioned_wherever_the_scores_are(shelf, refitted):
    folder, said = refitted
    text = (
        "The stored model was refitted on all 160 rows after the evaluation; the scores are those of the same method "
        "trained on 128 of them, and for the stored model, if anything, slightly pessimistic on average."
    )
    progress = said.stderr.splitlines()
    assert progress.index(
        "note: Training 1 of 2, without the held-out rows: the model to evaluate."
    ) < progress.index("note: Training 2 of 2, on all rows: the model to store.")
    numbers = as_json("inspect", folder)
    for place in (
        said.stdout,
        succeed("inspect", folder).stdout,
        numbers["report_numbers"]["refit"]["text"],
        numbers["description"]["metrics"]["refit"],
        html.unescape((folder / "report.html").read_text()),
        (folder / "model_card.md").read_text(),
    ):
        assert text in place
    before = as_json("inspect", shelf / "people-model")
    assert "refit" not in before["description"]["metrics"]
    other = {"refit": None, "provenance": None}
    assert before["report_numbers"] | other == numbers["report_numbers"] | other
    assert "refit" not in succeed("inspect", shelf / "people-model").stdout


def test_a_refitted_model_predicts_but_guarantees_no_risk(shelf, refitted, tmp_path):
    words = ["predict", refitted[0], shelf / "people.csv", "--out", tmp_path / "p.csv"]
    refused = run(*words, "--max-risk", "0.2")
    assert (refused.exit_code, refused.stdout, files(tmp_path)) == (2, "", [])
    assert refused.stderr.startswith(
        "error: A guaranteed maximum risk needs labelled rows that the model was"
    )
    assert "without --refit" in refused.stderr
    succeed(*words)
    other = pl.read_csv(shelf / "predictions.csv")
    assert [*pl.read_csv(tmp_path / "p.csv").columns, "novel"] == other.columns
    assert not pl.read_csv(tmp_path / "p.csv").equals(other.drop("novel"))
    strange = run(*words, "--force", "--novel", "abstain")
    assert (strange.exit_code, strange.stdout) == (2, "")
    assert "needs a novelty score; this model has none" in strange.stderr


def test_an_interrupted_refit_is_resumed_with_or_without_the_option(shelf, refitted, tmp_path, struck):
    """The checkpoints of the first training serve both; a refit that was interrupted goes on where it was."""
    args = ["fit", shelf / "people.csv", "--target", "kind", *QUICK, "--out"]
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for folder in (first, second):
        assert struck(11, *args, folder, "--refit").exit_code == 130
        assert list((tmp_path / f".{folder.name}.training").rglob("refit/checkpoint-*"))
    assert struck(4, *args, third).exit_code == 130
    again = run(*args, first, "--refit")
    assert again.exit_code == 2
    assert "Add --resume to continue it" in again.stderr
    succeed(*args, first, "--refit", "--resume")
    succeed(*args, second, "--resume")
    succeed(*args, third, "--refit", "--resume")
    assert files(tmp_path) == ["first", "second", "third"]
    expected = {first: refitted[0], second: shelf / "people-model", third: refitted[0]}
    for folder, other in expected.items():
        for name in files(other):
            assert (folder / name).read_bytes() == (other / name).read_bytes(), (folder, name)


def test_two_trainings_for_one_folder(shelf, tmp_path, monkeypatch):
    folder = tmp_path / "m"
    monkeypatch.setattr("selfcal._support.locks._acquired", lambda _: False)
    with pytest.raises(errors.ConfigError), locked(fit_module.unfinished(folder)):
        pass
    result = run("fit", shelf / "people.csv", "--target", "kind", "--out", folder, *QUICK)
    assert result.exit_code == 2
    assert "is in use by process" in result.stderr
    assert not folder.exists()


def test_debug_may_come_last(shelf):
    assert run("fit", shelf / "people.csv", "--target", "knd").exit_code == 3
    shown = run("fit", shelf / "people.csv", "--target", "knd", "--debug")
    assert isinstance(shown.exception, errors.DataError)


@pytest.mark.parametrize(
    ("memory", "code", "message"),
    [
        ("0.01MB", 3, "people.csv must fit into 0.0 GB of memory; it has about 160 rows"),
        ("0.03MB", 3, r"160 rows? of \d+ numbers need about|rows of \d+ numbers need about"),
        ("plenty", 2, "--memory must be a size, such as --memory 4GB"),
        ("0GB", 2, "--memory must be a size"),
    ],
)
def test_a_table_beyond_the_memory_is_refused_before_training(shelf, tmp_path, memory, code, message):
    result = run(
        "fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "model", "--memory", memory
    )
    assert result.exit_code == code
    assert re.search(message, result.stderr), result.stderr
    assert not list(tmp_path.iterdir())


def test_the_memory_of_the_machine_is_known():
    assert 2**26 < half_the_memory() < 2**44


def test_a_stop_after_the_training_says_how_to_go_on(shelf, tmp_path, monkeypatch):
    """Judging takes a while, too, and there is no step to stop after."""
    args = ["fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "model", *QUICK]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TableModel, "_judge", stop)
        stopped = run(*args)
    assert stopped.exit_code == 130
    assert "nothing is lost. Add --resume" in stopped.stderr
    whole = as_json(*args, "--resume")["report_numbers"]
    assert files(tmp_path) == ["model"]
    assert whole["methods"] == TableModel.load(shelf / "people-model").report.to_dict()["methods"]


def test_a_file_is_not_taken_for_a_model_folder(shelf, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    result = run("fit", shelf / "people.csv", "--target", "kind", "--out", mine)
    assert (result.exit_code, mine.read_text()) == (2, "mine")
    assert "it is a file, and a model is a folder" in result.stderr


def test_progress_counts_both_trainings_of_a_refit_and_the_distillation(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    args = ["fit", shelf / "people.csv", "--target", "kind", "--refit", "--one-network", "--progress"]
    said = succeed(*args, "--method", "crossfit", "--max-epochs", "3", "--out", tmp_path / "m").stderr
    assert "\r" not in said
    lines = [line for line in said.splitlines() if line.startswith("Training ") and "%: " in line]
    percent = [int(line.removeprefix("Training ").partition("%")[0]) for line in lines]
    assert percent == sorted(percent)
    for text in ("1 of 2, ", "members 1-5/5", "1 of 2, distilling one network", "2 of 2, distilling"):
        assert any(text in line for line in lines), text
    quiet = [*args[:-1], "--method", "crossfit", "--max-epochs", "3", "--out", tmp_path / "n"]
    assert "%: " not in succeed(*quiet).stderr


@pytest.mark.parametrize("method", ["mc_dropout", "laplace", "batch_ensemble"])
def test_methods_with_several_answers(shelf, tmp_path, method):
    model, rows = tmp_path / "model", tmp_path / "rows.csv"
    succeed("fit", shelf / "people.csv", "--target", "kind", *quick("--method", method), "--out", model)
    assert f"method         {method}\n" in succeed("inspect", model).stdout
    succeed("predict", model, shelf / "people.csv", "--out", rows)
    assert pl.read_csv(rows)["confidence"].is_between(0.3, 1).all()
