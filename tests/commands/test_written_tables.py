"""From a table as people write it to predictions, on the command line."""

import json

import numpy as np
import polars as pl

from tests.commands.conftest import as_json, quick, run, succeed


def sales(n=120):
    rng = np.random.default_rng(0)
    sold = rng.integers(2, size=n)
    price = rng.uniform(500, 3000, size=n) * (1 + sold)
    return pl.DataFrame(
        {
            "price": [f"${p:,.2f}" for p in price],
            "weight": [f"{w:.1f}".replace(".", ",") + " kg" for w in rng.normal(70, 9, size=n)],
            "discount": [f"{d:.1f}%" for d in rng.uniform(0, 40, size=n)],
            "day": [
                f"{d}.{m}.2024" for d, m in zip(rng.integers(1, 29, n), rng.integers(1, 13, n), strict=True)
            ],
            "gift": rng.choice(["yes", "no", "n/a"], size=n),
            "sold": np.where(sold, "sold", "kept"),
        }
    )


def test_fit_and_predict_read_the_same_from_any_notation_and_file(tmp_path):
    table = sales()
    table.write_csv(tmp_path / "sales.csv")
    fitted = as_json("fit", tmp_path / "sales.csv", "--target", "sold", "--out", tmp_path / "m", *quick())
    kinds = {column["name"]: column["kind"] for column in fitted["schema"]["columns"]}
    assert kinds == {
        "price": "number",
        "weight": "number",
        "discount": "number",
        "day": "date",
        "gift": "boolean",
    }
    notes = " ".join(fitted["notes"])
    for understood in ("in $, with commas between thousands", "in kg, with a decimal comma", "in %"):
        assert understood in notes
    plain = table.with_columns(
        pl.col("price").str.replace_all("[$,]", ""),
        pl.col("weight").str.replace(",", ".").str.strip_suffix(" kg"),
        pl.col("day").str.to_date("%d.%m.%Y").cast(pl.String),
    )
    plain.write_csv(tmp_path / "plain.csv")
    lines = "\n".join(json.dumps(row) for row in table.to_dicts())
    (tmp_path / "sales.jsonl").write_text(lines, encoding="utf-8")
    table.write_parquet(tmp_path / "sales.parquet")
    answers = []
    for name in ("sales.csv", "plain.csv", "sales.jsonl", "sales.parquet"):
        succeed("predict", tmp_path / "m", tmp_path / name, "--out", tmp_path / f"{name}-p.csv")
        answers.append(pl.read_csv(tmp_path / f"{name}-p.csv"))
    assert all(answer.equals(answers[0]) for answer in answers)


def test_a_quantity_as_target_is_refused_before_training(tmp_path):
    sales().write_csv(tmp_path / "sales.csv")
    result = run("fit", tmp_path / "sales.csv", "--target", "price", "--out", tmp_path / "m")
    assert result.exit_code == 3
    assert "looks continuous. Bin them" in result.stderr
    assert "--classes-anyway" in result.stderr


def test_a_json_array_is_named(tmp_path):
    (tmp_path / "t.json").write_text('[{"x": 1}]')
    result = run("evaluate", tmp_path / "t.json", "--target", "y")
    assert result.exit_code == 3
    assert "it is a JSON array" in result.stderr
