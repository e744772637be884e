import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from selfcal.commands import app

QUICK = ["--method", "standard", "--max-epochs", "8"]


def quick(*words):
    """The words, and those options of a quick training that are not among them."""
    return [*(word for i in (0, 2) if QUICK[i] not in words for word in QUICK[i : i + 2]), *words]


def run(*args, input=None):
    """Run a command in this process; `args` may be paths."""
    return CliRunner().invoke(app.app, [str(arg) for arg in args], input=input)


def succeed(*args, input=None):
    result = run(*args, input=input)
    assert result.exit_code == 0, result.output
    return result


def as_json(*args):
    return json.loads(succeed(*args, "--json").stdout)


def people(n=160, seed=0):
    """Size and colour tell the kind, not quite; three classes."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=n)
    colour = np.array(["red", "green", "blue"])[np.where(rng.random(n) < 0.7, kind, rng.integers(3, size=n))]
    size = (kind + rng.normal(size=n)).round(3)
    return pl.DataFrame(
        {
            "size": size,
            "colour": colour,
            "weight": rng.normal(size=n).round(3),
            "kind": [f"k{k}" for k in kind],
        }
    )


def inline(work, units, results, **options):
    """`run_units` without processes."""
    rows = results.rows()
    done = {(row["name"], row["seed"]) for row in rows}
    for unit in units:
        if unit not in done:
            rows = [*rows, *work(unit)]
            results.write(rows)
    return [row for row in rows if (row["name"], row["seed"]) in set(units)]


@pytest.fixture(scope="session")
def shelf(tmp_path_factory) -> Path:
    """A folder with `people.csv`, a model of it in `people-model`, and its predictions in `predictions.csv`."""
    folder = tmp_path_factory.mktemp("shelf")
    people().write_csv(folder / "people.csv")
    succeed("fit", folder / "people.csv", "--target", "kind", "--out", folder / "people-model", *QUICK)
    predictions = folder / "predictions.csv"
    succeed("predict", folder / "people-model", folder / "people.csv", "--out", predictions)
    return folder
