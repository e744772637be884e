"""What is understood of tables of predictions in many layouts, or what is asked for instead."""

import io

import numpy as np
import polars as pl
import pytest

from selfcal.errors import ConfigError, DataError
from selfcal.workflows.evaluation import Judge, judge_parts
from selfcal.workflows.layout_search import find_layout
from selfcal.workflows.recalibration import Recalibration

NO_YES = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
THREE = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]]
TWO_OF_LOGITS = [[0.5, 0.5], [0.25, 0.75]]
LN3 = "1.0986122886681098"


def rows(header, *lines):
    """A table as it is read from a CSV file: all cells are text."""
    return pl.read_csv(io.StringIO("\n".join([header, *lines])), infer_schema=False)


def three(*names):
    return rows(f"y,{','.join(names)}", "cat,.7,.2,.1", "dog,.1,.8,.1", "fox,.2,.3,.5")


def positive(header, labels=("no", "yes", "no")):
    cells = zip(labels, ("0.1", "0.8", "0.4"), strict=True)
    return rows(header, *(",".join(cell) for cell in cells))


UNDERSTOOD = {
    # a column for each class
    "names of classes": (three("cat", "dog", "fox"), {}, THREE),
    "p_cat": (three("p_cat", "p_dog", "p_fox"), {}, THREE),
    "prob_cat": (three("prob_cat", "prob_dog", "prob_fox"), {}, THREE),
    "cat_prob": (three("cat_prob", "dog_prob", "fox_prob"), {}, THREE),
    "cat_p": (three("cat_p", "dog_p", "fox_p"), {}, THREE),
    "P(cat)": (three("P(cat)", "P(dog)", "P(fox)"), {}, THREE),
    "confidence(cat)": (three("confidence(cat)", "confidence(dog)", "confidence(fox)"), {}, THREE),
    "columns in the order of classes": (
        three("a", "b", "c"),
        {"columns": ["a", "b", "c"], "classes": ["cat", "dog", "fox"]},
        THREE,
    ),
    "columns in another order than the table": (
        three("a", "b", "c"),
        {"columns": ["c", "a", "b"], "classes": ["fox", "cat", "dog"]},
        [[0.1, 0.7, 0.2], [0.1, 0.1, 0.8], [0.5, 0.2, 0.3]],
    ),
    "found columns in the order of classes": (
        three("P(cat)", "P(dog)", "P(fox)"),
        {"classes": ["dog", "cat", "fox"]},
        [[0.2, 0.7, 0.1], [0.8, 0.1, 0.1], [0.3, 0.2, 0.5]],
    ),
    "class_0": (rows("y,class_0,class_1", "0,.9,.1", "1,.2,.8", "0,.6,.4"), {}, NO_YES),
    "p0 beside other columns": (rows("y,p0,p1,price", "0,.9,.1,5", "1,.2,.8,6", "0,.6,.4,7"), {}, NO_YES),
    "prob_class_0": (rows("y,prob_class_0,prob_class_1", "0,.9,.1", "1,.2,.8", "0,.6,.4"), {}, NO_YES),
    "labels with decimals": (rows("y,prob_0,prob_1", "0.0,.9,.1", "1.0,.2,.8", "0.0,.6,.4"), {}, NO_YES),
    # percentages and logits
    "percentages": (rows("y,p_no,p_yes", "no,90,10", "yes,20,80", "no,60,40"), {}, NO_YES),
    "percentages that are named": (
        rows("y,p_no,p_yes", "no,90,10", "yes,20,80", "no,60,40"),
        {"scale": "percent"},
        NO_YES,
    ),
    "percent signs": (rows("y,p_no,p_yes", "no,90%,10%", "yes,20%,80%", "no,60%,40%"), {}, NO_YES),
    "rounded percentages": (
        rows("y,p_a,p_b,p_c", "a,33,33,33", "b,25,25,50", "c,0,0,100"),
        {},
        [[1 / 3] * 3, [0.25, 0.25, 0.5], [0, 0, 1]],
    ),
    "logits": (
        rows("y,logit_no,logit_yes", "no,2,2", f"yes,0,{LN3}"),
        {"logits": True},
        TWO_OF_LOGITS,
    ),
    "one logit": (rows("y,z", "no,0", f"yes,{LN3}"), {"logits": True, "positive": "yes"}, TWO_OF_LOGITS),
    # the probability of one of two classes
    "y_true, y_pred, y_prob": (rows("y,y_pred,y_prob", "0,0,.1", "1,1,.8", "0,0,.4"), {}, NO_YES),
    "y_pred with decimals": (rows("y,y_pred,y_prob", "0,0.0,.1", "1,1.0,.8", "0,0.0,.4"), {}, NO_YES),
    "probability of the first class": (
        rows("y,y_pred,y_prob", "abnormal,abnormal,.8", "normal,normal,.1"),
        {},
        [[0.2, 0.8], [0.9, 0.1]],
    ),
    "y_pred that is always 0": (
        rows("y,y_pred,y_prob", "0,0,.1", "0,0,.2"),
        {},
        [[0.9, 0.1], [0.8, 0.2]],
    ),
    "y_prob in percent": (
        rows("y,y_pred,y_prob", "0,0,10", "1,1,80", "0,0,40"),
        {"scale": "percent"},
        NO_YES,
    ),
    "y_prob with another threshold": (
        rows("y,y_pred,y_prob", "0,0,.1", "1,1,.8", "0,1,.4"),
        {"positive": "1"},
        NO_YES,
    ),
    "positive alone": (positive("y,y_prob"), {"positive": "yes"}, NO_YES),
    "positive in any column": (positive("y,model 7"), {"positive": "yes"}, NO_YES),
    "positive in a named column": (
        positive("y,model 7"),
        {"positive": "yes", "columns": ["model 7"]},
        NO_YES,
    ),
    "positive by the name of the column": (positive("y,prob_yes"), {}, NO_YES),
    "positive, one class seen": (rows("y,p", "1,.1", "1,.8"), {"positive": "1"}, [[0.9, 0.1], [0.2, 0.8]]),
    # a class and a confidence: wrong and right
    "label, prediction, confidence": (
        rows("y,prediction,confidence", "a,a,.9", "b,c,.4", "c,c,.6"),
        {},
        [[0.1, 0.9], [0.6, 0.4], [0.4, 0.6]],
    ),
    "two classes and a confidence": (
        rows("y,y_pred,y_prob", "0,0,.9", "1,1,.8", "0,1,.6"),
        {},
        [[0.1, 0.9], [0.2, 0.8], [0.4, 0.6]],
    ),
    "more classes than seen": (
        rows("y,pred,conf", "a,a,.9", "b,a,.3"),
        {"classes": list("abcd")},
        [[0.1, 0.9], [0.7, 0.3]],
    ),
    "confidence in percent": (
        rows("y,pred,conf", "a,a,90%", "b,a,55%"),
        {},
        [[0.1, 0.9], [0.45, 0.55]],
    ),
    "correct by option": (
        rows("y,conf", "true,.9", "false,.3"),
        {"correct": True},
        [[0.1, 0.9], [0.7, 0.3]],
    ),
}


@pytest.mark.fault("D35")
@pytest.mark.parametrize("name", UNDERSTOOD)
def test_understood(name):
    table, options, expected = UNDERSTOOD[name]
    judge = judge_parts([table], "y", **options)
    assert judge.predictions is not None
    np.testing.assert_allclose(judge.predictions.probs, expected, atol=1e-9)
    assert "\n" not in judge.layout.text


REFUSED = {
    "P(class 1) that is called a confidence": (
        rows("y,y_pred,confidence", "0,0,.1", "1,1,.8", "0,0,.4"),
        {},
        r"at least 1/2 with 2 classes; row 1 is 0.1 \(2 such rows\). It looks like P\(class 1\): use --positive 1",
    ),
    "P(class 1) that is named as the confidence": (
        rows("y,y_pred,y_prob", "0,0,.1", "1,1,.8", "0,0,.4"),
        {"choice": "y_pred", "confidence": "y_prob"},
        r"looks like P\(class 1\): use --positive 1",
    ),
    "P(class 1) with another threshold": (
        rows("y,y_pred,y_prob", "0,0,.1", "1,1,.8", "0,1,.4", "0,0,.2"),
        {},
        r"looks like P\(class 1\): use --positive 1",
    ),
    "P(class no)": (
        rows("y,pred,confidence", "no,no,.9", "yes,yes,.2", "no,no,.8"),
        {},
        r"looks like P\(class no\): use --positive no",
    ),
    "an uncertainty": (
        rows("y,pred,confidence", "a,a,.1", "b,b,.2", "b,a,.45", "a,b,.4"),
        {},
        "replace it by 1 - confidence",
    ),
    "less than one of three": (
        rows("y,pred,confidence", "a,a,.9", "b,b,.2", "c,a,.1"),
        {},
        "at least 1/3 with 3 classes; row 2 is 0.2 .* name all with --classes",
    ),
    "one column of probabilities": (positive("y,y_prob"), {}, "use --positive yes"),
    "names that are not the classes": (
        three("a", "b", "c"),
        {},
        "--columns A,B,C --classes X,Y,Z in the same order",
    ),
    "columns without their classes": (
        three("a", "b", "c"),
        {"columns": ["a", "b", "c"]},
        "--columns A,B,C --classes X,Y,Z",
    ),
    "too few classes": (
        three("a", "b", "c"),
        {"columns": ["a", "b", "c"], "classes": ["cat", "dog"]},
        "got 3 columns and 2 classes",
    ),
    "logits without the option": (
        rows("y,p_a,p_b", "a,2.5,-1", "b,0,3"),
        {},
        r"row 1 is \[ 2.5 -1. \] with sum 1.5 .* For logits pass --logits",
    ),
    "a confidence in percent without a sign": (
        rows("y,pred,conf", "a,a,90", "b,a,55"),
        {},
        r"must lie in \[0, 1\]; row 1 is 90 .* --scale percent",
    ),
    "percentages that are fractions": (
        rows("y,p_a,p_b", "a,90,10", "b,20,80"),
        {"scale": "fraction"},
        "sum to one",
    ),
    "an unknown scale": (three("cat", "dog", "fox"), {"scale": "per cent"}, "Did you mean 'percent'"),
    "logits of the predicted class": (
        rows("y,pred,conf", "a,a,2", "b,a,1"),
        {"logits": True},
        "--logits needs a column of logits for each class",
    ),
    "logits in percent": (
        three("cat", "dog", "fox"),
        {"logits": True, "scale": "percent"},
        "exclude each other",
    ),
    "a misspelt positive class": (positive("y,p"), {"positive": "Yes"}, "Did you mean 'yes'"),
    "a positive class of three": (
        rows("y,p", "a,.1", "b,.8", "c,.4"),
        {"positive": "c"},
        "must be one of two classes .* --columns",
    ),
    "only the positive class": (rows("y,p", "b,.1"), {"positive": "b"}, "--classes OTHER,b"),
    "classes in two spellings": (
        rows("y,y_pred,y_prob", "0,False,.1", "1,True,.8"),
        {},
        "must name the same classes; got '0', '1' and 'False', 'True'",
    ),
    "one class and less than one half": (
        rows("y,pred,prob", "a,a,.1", "a,a,.2"),
        {},
        "at least 1/2 .* name that class with --positive",
    ),
    "no predicted class": (rows("y,pred,conf", "a,a,.9", "b,,.2"), {}, "at least 1/2 .* name that class"),
    "the right target in another column": (
        rows("y,correct,conf", "a,1,.9", "b,0,.2"),
        {},
        "use --target correct --correct",
    ),
    "infinite logits": (
        rows("y,p_a,p_b", "a,3,0", "b,-inf,1"),
        {"logits": True},
        "Column 'p_a' must hold finite logits; row 2 is -inf",
    ),
    "neither right nor wrong": (rows("y,conf", "1,.9", "maybe,.3"), {"correct": True}, "row 2 is 'maybe'"),
}


@pytest.mark.fault("D35")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    table, options, message = REFUSED[name]
    with pytest.raises((ConfigError, DataError), match=message) as error:
        judge_parts([table], "y", **options)
    assert str(error.value).count(". ") <= 2


@pytest.mark.parametrize("cells", [("1", "0"), ("true", "False"), ("1.0", "0.0")])
def test_correct_and_confidence(cells):
    judge = judge_parts([rows("correct,confidence", f"{cells[0]},.9", f"{cells[1]},.3")], "correct")
    assert judge.predictions is not None
    assert judge.predictions.correct.tolist() == [True, False]
    assert judge.layout.text == (
        "Using 'correct', whether the prediction is right, and the confidence in 'confidence'."
    )


def test_what_was_understood_is_said():
    texts = {
        "y_true, y_pred, y_prob": "Using 'y_prob' as the probability of class '1': it is above one half where "
        "'y_pred' is that class.",
        "positive alone": "Using 'y_prob' as the probability of class 'yes'.",
        "percentages": "Using 2 columns of percentages: 'p_no', 'p_yes'.",
        "one logit": "Using 'z' as the logit of class 'yes'.",
        "columns in the order of classes": "Using 3 columns of probabilities: 'a', 'b', 'c', of the classes 'cat', "
        "'dog', 'fox'.",
        "confidence in percent": "Using the class in 'pred' and the confidence in 'conf', in percent.",
    }
    for name, text in texts.items():
        table, options, _ = UNDERSTOOD[name]
        assert find_layout(table, "y", **options).text == text


def test_later_rows_must_agree_with_the_first_ones():
    first = rows("y,y_pred,y_prob", "0,0,.1", "1,1,.8")
    judge = Judge(find_layout(first, "y")).update(first)
    with pytest.raises(DataError, match=r"row 1 is 0\.9 .* Rows are counted from row 3"):
        judge.update(rows("y,y_pred,y_prob", "0,0,.9"))


@pytest.mark.parametrize(
    ("header", "unit", "options"),
    [
        ("y,p_a,p_b", lambda p: (1 - p, p), {}),
        ("y,p_a,p_b", lambda p: (100 - 100 * p, 100 * p), {}),
        ("y,p_a,p_b", lambda p: (0 * p, np.log(p / (1 - p))), {"logits": True}),
        ("y,p", lambda p: (p,), {"positive": "b"}),
        ("y,p", lambda p: (100 * p,), {"positive": "b", "scale": "percent"}),
        ("y,p", lambda p: (np.log(p / (1 - p)),), {"positive": "b", "logits": True}),
    ],
)
def test_calibrated_predictions_keep_their_layout(header, unit, options):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 200)
    y = np.where(rng.random(200) < 0.5 + 0.5 * (p - 0.5), "b", "a")
    table = pl.DataFrame([y, *unit(p)], schema=header.split(","))
    recalibration = Recalibration(find_layout(table, "y", **options)).fit(table)
    after = recalibration.apply(table)
    again = find_layout(after, "y", **options).probabilities(after)
    assert after.columns == table.columns
    assert np.abs(again[:, 1] - 0.5).max() < 0.45
    assert recalibration.gain.difference.value < 0
    np.testing.assert_array_equal(again[:, 1] > 0.5, p > 0.5)


def test_the_predicted_class_follows_the_calibrated_probability():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 400)
    y = (rng.random(400) < p**3).astype(int)
    table = pl.DataFrame({"y_true": y, "y_pred": (p > 0.5).astype(int), "y_prob": p})
    after = Recalibration(find_layout(table, "y_true"), "isotonic").fit(table).apply(table)
    assert ((after["y_prob"] > 0.5) == (after["y_pred"] == 1)).all()
    assert (after["y_pred"] == 1).sum() < (p > 0.5).sum()


def test_calibrated_confidences_can_be_evaluated():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.34, 1, 600)
    right = rng.random(600) < np.where(confidence < 0.6, 0.1, 0.9)
    chosen = rng.integers(3, size=600)
    y = np.where(right, chosen, (chosen + 1) % 3)
    table = pl.DataFrame({"y": y, "pred": chosen, "confidence": confidence})
    after = Recalibration(find_layout(table, "y"), "isotonic").fit(table).apply(table)
    assert after["confidence"].min() == pytest.approx(1 / 3)
    assert judge_parts([after], "y").rows == 600


def test_rounded_probabilities_are_rescaled_and_that_is_said():
    table = rows("y,prob_a,prob_b,prob_c", "a,0.33,0.33,0.33", "b,0.2,0.5,0.3", "c,0.17,0.17,0.67")
    layout = find_layout(table, "y")
    assert layout.text.endswith("'prob_c', rounded to 2 digits and rescaled to sum to 1.")
    np.testing.assert_allclose(layout.probabilities(table).sum(axis=1), 1)
    np.testing.assert_allclose(layout.probabilities(table)[0], 1 / 3)
    whole = rows("y,prob_a,prob_b", "a,0.33,0.67", "b,0.2,0.8")
    assert find_layout(whole, "y").digits is None


@pytest.mark.parametrize(
    "line",
    ["b,0.33,0.33,0.30", "b,0.3333,0.3333,0.3324", "b,0.5,0.5,0.2", "b,0.33333333,0.33,0.33"],
    ids=["two digits", "four digits", "one digit", "eight digits"],
)
def test_what_rounding_cannot_explain_is_an_error(line):
    table = rows("y,prob_a,prob_b,prob_c", "a,0.2,0.5,0.3", line, "c,0.1,0.1,0.8")
    with pytest.raises(
        DataError, match=r"sum to one in each row; row 2 is .* with sum .*--logits.*--columns"
    ):
        find_layout(table, "y").probabilities(table)
