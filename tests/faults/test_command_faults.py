"""Bad data and faults through the command line: exit code, message, and nothing half-written."""

import gzip
import io
import re
import unicodedata

import numpy as np
import polars as pl
import pytest

from selfcal.tabular.io import read_table, write_batches
from tests.commands.conftest import QUICK, as_json, people, run, shelf, succeed
from tests.faults import case

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
        case("D1", b"", "the file is empty"),
        case("D2", b"size,colour,kind\n", "no rows"),
        case("D3", CSV.replace("red", "röd").encode("latin-1"), "--encoding"),
        case("D6", CSV.replace("weight", "size").encode(), "'size'"),
        case("D7", "\n".join([*LINES[:5], "1,2,3,4,5"]).encode(), "line 6"),
        case("D8", "\n".join([*LINES[:5], "1,2"]).encode(), "--ragged"),
        case("D10", "\n".join([*LINES, "1e400,red,1,k0"]).encode(), "--nonfinite impute"),
        case("D11", "\n".join([*LINES, "large,red,1,k0"]).encode(), "row 161 is 'large'"),
        case("D13-quote", CSV.encode() + b'1,"red', "quote"),
        case("D13-NUL", CSV.encode() + b"\0", "NUL"),
        case("D15", re.sub("k[12]", "k0", CSV).encode(), "at least two classes"),
        case("D17", "\n".join([*LINES, "1,red,1,"]).encode(), "--drop-unlabelled"),
        case("D16-few", "\n".join(LINES[:6]).encode(), "at least 20 labelled rows"),
        case("D25-cut", parquet(people())[:-20], "damaged"),
        case("D25-list", parquet(people().with_columns(weight=[[1, 2]] * 160)), "column 'weight' is List"),
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
        case("D4", CSV.encode("utf-16")),
        case("D5", CSV.encode("utf-8-sig")),
        case("D12", CSV.replace(",", ";").encode()),
        case("D13-gzip", gzip.compress(CSV.encode())),
        case("D25-dictionary", parquet(people().with_columns(pl.col("colour").cast(pl.Categorical)))),
    ],
)
def test_a_table_in_another_dress_gives_the_same_predictions(data, shelf, tmp_path):
    (tmp_path / "data").write_bytes(data)
    result = succeed("predict", shelf / "people-model", tmp_path / "data", "--out", "-")
    assert result.stdout == (shelf / "predictions.csv").read_text()


@pytest.mark.fault("D23")
@pytest.mark.parametrize(
    ("table", "message"),
    [
        case("D23-missing", people().drop("size", "colour"), "missing 2: 'size', 'colour'"),
        case(
            "D23-renamed", people().rename({"size": "Size"}), "a column that was renamed, such as 'Size', or"
        ),
        case("D23-type", people().with_columns(size=pl.lit("large")), "numbers, as at fit; row 1 is 'large'"),
    ],
)
def test_a_table_the_model_cannot_use(table, message, shelf, tmp_path):
    table.write_csv(tmp_path / "d.csv")
    (tmp_path / "p.csv").write_text("older")
    words = ["predict", shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / "p.csv", "--force"]
    result = run(*words)
    assert (result.exit_code, result.stdout) == (3, "")
    assert message in result.stderr
    assert (tmp_path / "p.csv").read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.fault("D23")
def test_reordered_extra_and_target_missing(shelf, tmp_path):
    table = people().drop("kind").with_columns(extra=1).select("extra", "weight", "colour", "size")
    table.write_csv(tmp_path / "d.csv")
    result = succeed("predict", shelf / "people-model", tmp_path / "d.csv", "--out", "-")
    assert "ignored: 'extra'" in result.stderr
    expected = pl.read_csv(shelf / "predictions.csv").drop("kind")
    assert pl.read_csv(io.StringIO(result.stdout)).equals(expected)


@pytest.mark.fault("D23")
@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_no_rows_give_a_header(name, shelf, tmp_path):
    people().head(0).write_csv(tmp_path / "d.csv")
    succeed("predict", shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / name)
    read = pl.read_csv(tmp_path / name) if name == "p.csv" else pl.read_parquet(tmp_path / name)
    assert read.height == 0
    assert read.columns == ["kind", "predicted", "confidence", "prob_k0", "prob_k1", "prob_k2", "novel"]


@pytest.mark.fault("D23")
def test_a_bad_cell_far_down_leaves_no_output_and_is_found_again(shelf, tmp_path, monkeypatch):
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


@pytest.mark.fault("D9", "D24", "S6", "S7")
def test_names_of_classes_come_out_as_they_went_in(tmp_path):
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


@pytest.mark.fault("D19")
def test_a_copy_of_the_target_is_named(tmp_path):
    people().with_columns(copy=pl.col("kind")).write_csv(tmp_path / "d.csv")
    result = succeed("fit", tmp_path / "d.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK)
    assert "the results are too optimistic" in result.stderr
    assert "the results are too optimistic" in succeed("inspect", tmp_path / "m").stdout


@pytest.mark.fault("F5", "S2", "S11")
@pytest.mark.parametrize(
    "name",
    ["model.json", "model.safetensors", "preprocessor.skops", "report.html", "report.json", "model_card.md"],
)
def test_a_model_with_a_changed_byte(name, shelf, tmp_path):
    for path in (shelf / "people-model").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / name).write_bytes(data)
    for command in (["predict", tmp_path, shelf / "people.csv", "--out", "-"], ["inspect", tmp_path]):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (5, "")
        assert name in result.stderr


@pytest.mark.fault("S6")
def test_excel_safe_changes_formulas_alone(tmp_path):
    table = pl.DataFrame({"=a": ["=1", "+1", "-1", "@x", "\tx", "\rx", "x=1", ""], "n": [-1.5] * 8})
    write_batches([table], tmp_path / "t.csv", excel_safe=True)
    read = read_table(tmp_path / "t.csv")
    assert read["'=a"].to_list() == ["'=1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "x=1", ""]
    assert read["n"].to_list() == ["-1.5"] * 8
