import io

import numpy as np
import polars as pl
import pytest

from selfcal import metrics
from selfcal.workflows import evaluation
from selfcal.workflows.evaluation import Judge
from selfcal.workflows.layout_search import find_layout
from tests.commands.conftest import as_json, run, succeed


@pytest.fixture
def judged(shelf):
    return as_json("evaluate", shelf / "predictions.csv", "--target", "kind")["methods"][0]


def probabilities(shelf):
    table = pl.read_csv(shelf / "predictions.csv")
    return table["kind"].to_numpy(), table.select("prob_k0", "prob_k1", "prob_k2").to_numpy()


def test_the_numbers_are_those_of_the_metrics(shelf, judged):
    y, probs = probabilities(shelf)
    classes = ["k0", "k1", "k2"]
    assert judged["log_loss"]["value"] == pytest.approx(metrics.log_loss(y, probs, classes=classes))
    assert judged["brier_score"]["value"] == pytest.approx(metrics.brier_score(y, probs, classes=classes))
    error = metrics.expected_calibration_error(y, probs, classes=classes)
    assert judged["ece"]["value"] == pytest.approx(error)


def test_the_verdict_comes_first_and_then_a_table(shelf):
    lines = succeed("evaluate", shelf / "predictions.csv", "--target", "kind").stdout.splitlines()
    assert lines[0].startswith("Verdict: ")
    assert lines[1] == "160 rows, 3 classes:"
    assert any(line.split()[:2] == ["log", "loss"] for line in lines)


def test_sums_alone_say_the_same_as_all_rows(shelf, judged, monkeypatch):
    """What is said of ten million rows, of which nothing but sums is kept."""
    monkeypatch.setattr(evaluation, "MOST_KEPT", 10)
    monkeypatch.setattr(Judge.__init__, "__kwdefaults__", {**Judge.__init__.__kwdefaults__, "keep": 10})
    streamed = as_json("evaluate", shelf / "predictions.csv", "--target", "kind")["methods"][0]
    for name in ("accuracy", "ece", "log_loss", "brier_score"):
        assert streamed[name]["value"] == pytest.approx(judged[name]["value"])
    assert streamed["by_range"] == judged["by_range"]
    assert streamed["noise_floor"]["mean"] == pytest.approx(judged["noise_floor"]["mean"], rel=0.15)
    assert streamed["judgement"] == judged["judgement"]
    refused = run("evaluate", shelf / "predictions.csv", "--target", "kind", "--report", "r.html")
    assert refused.exit_code == 2


@pytest.mark.parametrize(("claimed", "judgement"), [(0.99, "over"), (0.8, "honest"), (0.6, "under")])
def test_the_streamed_judgement_tells_honest_from_not(claimed, judgement):
    right = np.random.default_rng(0).random(20_000) < 0.8
    table = pl.DataFrame({"y": np.where(right, "a", "b"), "predicted": "a", "confidence": claimed})
    judge = Judge(find_layout(table, "y"), keep=0)
    for part in table.iter_slices(7_000):
        judge.update(part)
    assert judge.predictions is None
    assert judge.result().methods[0].judgement == judgement


def test_a_class_and_a_confidence_are_enough(shelf, judged):
    args = ["--class-column", "predicted", "--confidence-column", "confidence"]
    claimed = as_json("evaluate", shelf / "predictions.csv", "--target", "kind", *args)["methods"][0]
    for name in ("accuracy", "ece"):
        assert claimed[name]["value"] == pytest.approx(judged[name]["value"])


@pytest.mark.parametrize(
    ("names", "args"),
    [
        (["p_a", "p_b"], []),
        (["a", "b"], []),
        (["model: a", "model: b"], ["--prob-prefix", "model: "]),
        (["prob_a", "prob_b"], []),
        (["a", "b"], ["--columns", "a,b"]),
    ],
)
def test_columns_are_found_by_the_names_of_the_classes(names, args):
    table = pl.DataFrame(
        {"id": [1, 2, 3], names[0]: [0.9, 0.2, 0.4], names[1]: [0.1, 0.8, 0.6], "y": ["a", "b", "a"]}
    )
    result = run("evaluate", "-", "--target", "y", *args, input=table.write_csv().encode())
    assert result.exit_code == 0, result.output
    assert repr(names[1]) in result.stderr
    assert "0.6667" in result.stdout


def test_one_and_one_point_zero_are_one_class():
    table = pl.DataFrame({"y": [1.0, 0.0], "prob_0": [0.2, 0.7], "prob_1": [0.8, 0.3]})
    file = io.BytesIO()
    table.write_parquet(file)
    assert "1.0000" in run("evaluate", "-", "--target", "y", input=file.getvalue()).stdout


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("y,prob_a,prob_b\na,0.9,0.2\n", 3, "sum to one"),
        ("y,prob_a,prob_b\na,0.9,x\n", 3, "Column 'prob_b' must hold probabilities; row 1 is 'x'"),
        ("y,prob_a,prob_b\nb,0.9,\n", 3, "Column 'prob_b' must hold probabilities"),
        ("y,prob_a,prob_b\n,0.9,0.1\n", 3, "row 1 has none"),
        ("y,score\na,0.9\n", 3, "--class-column and --confidence-column"),
        ("y,predicted,confidence\na,a,1.2\n", 3, "must lie in [0, 1]"),
        ("z,prob_a,prob_b\na,0.9,0.1\n", 3, "must have a column 'y'"),
    ],
)
def test_mistakes(text, code, message):
    result = run("evaluate", "-", "--target", "y", input=text.encode())
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_a_label_without_a_column_is_named_with_its_row():
    rows = "a,0.9,0.1\nb,0.1,0.9\n" * 3
    table = find_layout(pl.DataFrame({"y": ["a", "b"], "prob_a": [0.9, 0.1], "prob_b": [0.1, 0.9]}), "y")
    judge = Judge(table).update(pl.read_csv(io.StringIO("y,prob_a,prob_b\n" + rows)))
    with pytest.raises(evaluation.DataError, match="row 7 is 'c'"):
        judge.update(pl.DataFrame({"y": ["c"], "prob_a": [0.5], "prob_b": [0.5]}))


def test_unlabelled_rows_are_counted_when_left_out():
    text = b"y,prob_a,prob_b\na,0.9,0.1\n,0.5,0.5\nb,0.3,0.7\n"
    result = run("evaluate", "-", "--target", "y", "--drop-unlabelled", input=text)
    assert "1 row without a label" in result.stderr
    assert "2 rows, 2 classes" in result.stdout


def test_a_page_is_written_when_asked_for(shelf, tmp_path):
    args = ["evaluate", shelf / "predictions.csv", "--target", "kind", "--report"]
    succeed(*args, tmp_path / "page.html")
    assert "Reliability" in (tmp_path / "page.html").read_text()
    assert run(*args, tmp_path / "page.pdf").exit_code == 2


def test_predictions_without_the_truth_are_told_where_it_comes_from(shelf, tmp_path):
    pl.read_csv(shelf / "predictions.csv").drop("kind").write_csv(tmp_path / "p.csv")
    result = run("evaluate", tmp_path / "p.csv", "--target", "kind")
    assert result.exit_code == 3
    assert "selfcal predict copies that column if its data has it" in result.stderr
