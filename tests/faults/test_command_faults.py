"""Bad data and faults through the command line: exit code, message, and nothing half-written."""

import gzip
import io
import os
import re
import resource
import unicodedata

import numpy as np
import polars as pl
import pytest

from selfcal.tables import read_table, write_batches
from tests.commands.conftest import QUICK, as_json, people, run, shelf, succeed

__all__ = ["shelf"]  # the fixture

CSV = people().write_csv()
LINES = CSV.splitlines()


def parquet(table):
    file = io.BytesIO()
    table.write_parquet(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "the file is empty", id="D1"),
        pytest.param(b"size,colour,kind\n", "no rows", id="D2"),
        pytest.param(CSV.replace("red", "röd").encode("latin-1"), "--encoding", id="D3"),
        pytest.param(CSV.replace("weight", "size").encode(), "'size'", id="D6"),
        pytest.param("\n".join([*LINES[:5], "1,2,3,4,5"]).encode(), "line 6", id="D7"),
        pytest.param("\n".join([*LINES[:5], "1,2"]).encode(), "--ragged", id="D8"),
        pytest.param("\n".join([*LINES, "1e400,red,1,k0"]).encode(), "--nonfinite impute", id="D10"),
        pytest.param("\n".join([*LINES, "large,red,1,k0"]).encode(), "row 161 is 'large'", id="D11"),
        pytest.param(CSV.encode() + b'1,"red', "quote", id="D13-quote"),
        pytest.param(CSV.encode() + b"\0", "NUL", id="D13-NUL"),
        pytest.param(re.sub("k[12]", "k0", CSV).encode(), "at least two classes", id="D15"),
        pytest.param("\n".join([*LINES, "1,red,1,"]).encode(), "--drop-unlabelled", id="D17"),
        pytest.param("\n".join(LINES[:6]).encode(), "at least 20 labelled rows", id="few"),
        pytest.param(parquet(people())[:-20], "damaged", id="D25-cut"),
        pytest.param(
            parquet(people().with_columns(weight=[[1, 2]] * 160)), "column 'weight' is List", id="D25-list"
        ),
    ],
)
def test_a_table_that_cannot_be_learned_from(data, message, tmp_path):
    (tmp_path / "data").write_bytes(data)
    result = run("fit", tmp_path / "data", "--target", "kind", "--out", tmp_path / "model", *QUICK)
    assert result.exit_code == 3, result.output
    assert result.stdout == ""
    assert message.lower() in result.stderr.lower()
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(CSV.encode("utf-16"), id="D4"),
        pytest.param(CSV.encode("utf-8-sig"), id="D5"),
        pytest.param(CSV.replace(",", ";").encode(), id="D12"),
        pytest.param(gzip.compress(CSV.encode()), id="D13-gzip"),
        pytest.param(
            parquet(people().with_columns(pl.col("colour").cast(pl.Categorical))), id="D25-dictionary"
        ),
    ],
)
def test_a_table_in_another_dress_gives_the_same_predictions(data, shelf, tmp_path):
    (tmp_path / "data").write_bytes(data)
    result = succeed("predict", shelf / "people-model", tmp_path / "data", "--out", "-")
    assert result.stdout == (shelf / "predictions.csv").read_text()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param(people().drop("size", "colour"), "missing 2: 'size', 'colour'", id="D23-missing"),
        pytest.param(people().rename({"size": "Size"}), "a column that was renamed", id="D23-renamed"),
        pytest.param(
            people().with_columns(size=pl.lit("large")), "numbers, as at fit; row 1 is 'large'", id="D23-type"
        ),
    ],
)
def test_D23_a_table_the_model_cannot_use(table, message, shelf, tmp_path):
    table.write_csv(tmp_path / "d.csv")
    (tmp_path / "p.csv").write_text("older")
    result = run("predict", shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / "p.csv")
    assert (result.exit_code, result.stdout) == (3, "")
    assert message in result.stderr
    assert (tmp_path / "p.csv").read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 2


def test_D23_reordered_extra_and_target_missing(shelf, tmp_path):
    table = people().drop("kind").with_columns(extra=1).select("extra", "weight", "colour", "size")
    table.write_csv(tmp_path / "d.csv")
    result = succeed("predict", shelf / "people-model", tmp_path / "d.csv", "--out", "-")
    assert "ignored: 'extra'" in result.stderr
    expected = pl.read_csv(shelf / "predictions.csv").drop("kind")
    assert pl.read_csv(io.StringIO(result.stdout)).equals(expected)


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_D23_no_rows_give_a_header(name, shelf, tmp_path):
    people().head(0).write_csv(tmp_path / "d.csv")
    succeed("predict", shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / name)
    read = pl.read_csv(tmp_path / name) if name == "p.csv" else pl.read_parquet(tmp_path / name)
    assert read.height == 0
    assert read.columns == ["kind", "predicted", "confidence", "prob_k0", "prob_k1", "prob_k2"]


def test_D23_a_bad_cell_far_down_leaves_no_output_and_is_found_again(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal.commands.predict.ROWS", 100)
    (tmp_path / "d.csv").write_text("\n".join([*LINES, "large,red,1,k0", ""]))
    result = run("predict", shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / "p.csv")
    assert result.exit_code == 3
    assert "row 61 is 'large'" in result.stderr
    assert "Rows are counted from row 101" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


NAMES = [
    "NA",
    "",
    "=1+1",
    "שלום",
    "🦊\n🦊",
    "[red]x[/red]",
    unicodedata.normalize("NFD", "é"),
    "é",
    "x" * 10_000,
]


def test_D9_D24_S6_S7_names_of_classes_come_out_as_they_went_in(tmp_path):
    rng = np.random.default_rng(0)
    code = np.arange(180) % len(NAMES)
    table = pl.DataFrame(
        {"a": code + rng.normal(size=180), "b": rng.normal(size=180), "y": [NAMES[c] for c in code]}
    )
    table.write_csv(tmp_path / "d.csv")
    fitted = as_json("fit", tmp_path / "d.csv", "--target", "y", "--out", tmp_path / "m", *QUICK)
    assert sorted(fitted["classes"]) == sorted(NAMES)
    assert any("look alike" in text for text in fitted["notes"])
    succeed("predict", tmp_path / "m", tmp_path / "d.csv", "--out", tmp_path / "p.csv")
    read = read_table(tmp_path / "p.csv")
    assert read["y"].to_list() == table["y"].to_list()
    assert set(read["predicted"]) <= set(NAMES)
    assert {f"prob_{name}" for name in NAMES} <= set(read.columns)
    assert "\x1b" not in succeed("inspect", tmp_path / "m").output
    judged = as_json("evaluate", tmp_path / "p.csv", "--target", "y")["methods"][0]
    assert judged["accuracy"]["value"] == np.mean(read["y"].to_numpy() == read["predicted"].to_numpy())


def test_D16_a_class_with_one_row_is_trained_on_and_flagged(tmp_path):
    (tmp_path / "d.csv").write_text("\n".join([*LINES, "1,red,1,rare"]))
    fitted = as_json("fit", tmp_path / "d.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK)
    assert "rare" in fitted["classes"]
    assert any("not estimable: 'rare'" in text for text in fitted["notes"])


def test_D17_D20_rows_left_out_and_repeated_rows_are_told(tmp_path):
    text = "\n".join([*LINES, *LINES[1:31], "1,red,1,"])
    (tmp_path / "d.csv").write_text(text)
    args = ["--target", "kind", "--drop-unlabelled", "--out", tmp_path / "m", *QUICK]
    notes = as_json("fit", tmp_path / "d.csv", *args)["notes"]
    assert any(text.startswith("1 of 191 rows have no label") for text in notes)
    assert any(text.startswith("30 of 190 rows repeat an earlier row") for text in notes)


def test_D18_labels_that_are_noise_promise_nothing(tmp_path):
    rng = np.random.default_rng(99)
    table = people(400).with_columns(kind=pl.Series(rng.choice(["k0", "k1"], 400)))
    table.write_csv(tmp_path / "d.csv")
    fitted = as_json("fit", tmp_path / "d.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK)
    judged = fitted["report_numbers"]["methods"][0]
    assert judged["accuracy"]["low"] <= 0.5
    args = [tmp_path / "m", tmp_path / "d.csv", "--out", tmp_path / "p.csv", "--max-risk", "0.05"]
    assert as_json("predict", *args)["abstained"] == 400


def test_D19_a_copy_of_the_target_is_named(tmp_path):
    people().with_columns(copy=pl.col("kind")).write_csv(tmp_path / "d.csv")
    result = succeed("fit", tmp_path / "d.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK)
    assert "too good to be true" in result.stderr
    assert "too good to be true" in succeed("inspect", tmp_path / "m").stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_F4_a_folder_that_cannot_be_written_to(shelf, tmp_path):
    tmp_path.chmod(0o500)
    assert run("fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "m").exit_code == 6


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz"])
def test_F3_F4_no_room_for_the_output(name, shelf, tmp_path):
    (tmp_path / name).write_bytes(b"older")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        result = run("predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.exit_code == 6, result.output
    assert f"Could not write {tmp_path / name}" in result.stderr
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_F4_the_place_of_the_output_is_a_file(shelf, tmp_path):
    (tmp_path / "file").write_text("")
    result = run(
        "predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / "file" / "p.csv"
    )
    assert result.exit_code == 6
    result = run(
        "fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "file" / "model", *QUICK
    )
    assert result.exit_code == 6


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "preprocessor.skops"])
def test_F5_S2_a_model_with_a_changed_byte(name, shelf, tmp_path):
    for path in (shelf / "people-model").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / name).write_bytes(data)
    result = run("predict", tmp_path, shelf / "people.csv", "--out", "-")
    assert (result.exit_code, result.stdout) == (5, "")


def test_S6_excel_safe_changes_formulas_alone(tmp_path):
    table = pl.DataFrame({"=a": ["=1", "+1", "-1", "@x", "\tx", "\rx", "x=1", ""], "n": [-1.5] * 8})
    write_batches([table], tmp_path / "t.csv", excel_safe=True)
    read = read_table(tmp_path / "t.csv")
    assert read["'=a"].to_list() == ["'=1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "x=1", ""]
    assert read["n"].to_list() == ["-1.5"] * 8
