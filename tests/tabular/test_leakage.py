import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from selfcal.tabular.inference import infer_schema
from selfcal.tabular.leakage import leaks
from selfcal.tabular.schema import column_values
from selfcal.tabular.target import read_target


def leaking(columns, y, groups=None):
    """The names of the columns that are warned of."""
    table = pl.DataFrame({**columns, "y": [f"class {label}" for label in y]})
    schema = infer_schema(table, target="y")
    found = leaks(
        column_values(table, schema),
        schema,
        read_target(table, "y"),
        np.arange(table.height) if groups is None else groups,
    )
    assert all(
        "If it is known only after the outcome, leave it out with --kind " in warning for warning in found
    )
    return [warning.split("'")[1] for warning in found]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_a_copy_of_the_target_is_found_whatever_its_spelling(rng):
    y = rng.integers(0, 3, 2000)
    noisy = np.where(rng.random(2000) < 0.2, (y + 1) % 3, y)
    columns = {
        "copy": [f"{v * 1.5 + 1}" for v in y],
        "nearly": [str(v) if i != 7 else "0" for i, v in enumerate(y)],
        "missing": [None if v == 2 else v for v in y],
        "noisy": noisy.astype(str),
        "legitimate": rng.integers(0, 3, 2000).astype(str),
    }
    assert leaking(columns, y) == ["copy", "nearly", "missing"]


@pytest.mark.parametrize("n", [400, 30_000])
def test_a_continuous_copy_with_noise(rng, n):
    y = rng.integers(0, 2, n)
    columns = {f"{noise}": y + noise * rng.normal(size=n) for noise in (0.01, 0.15, 0.5)}
    assert leaking(columns, y) == ["0.01", "0.15"]


@pytest.mark.parametrize("n_levels", [10, 300])
def test_levels_that_determine_the_class(rng, n_levels):
    level = rng.integers(0, n_levels, 6000)
    y = level * 7 % n_levels >= n_levels / 2
    columns = {"level": [f"level {v}" for v in level], "code": level % 10, "x": rng.normal(size=6000)}
    assert leaking(columns, y) == ["level", "code"][: 2 if n_levels == 10 else 1]


def test_a_rare_class(rng):
    y = rng.random(20_000) < 0.01
    columns = {"tells": y + 0.1 * rng.normal(size=20_000), "helps": y + rng.normal(size=20_000)}
    assert leaking(columns, y) == ["tells"]


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_good_columns_of_real_tables_are_not_leaks(load):
    data = load()
    assert leaking({f"x{i}": column for i, column in enumerate(data.data.T)}, data.target) == []


def test_copies_do_not_make_a_leak(rng):
    """A column tells the class of a row whose copy is in the other half; so copies are not divided."""
    x, y = np.tile(rng.normal(size=(60, 2)), (20, 1)), np.tile(rng.integers(0, 2, 60), 20)
    columns = {"x": x[:, 0], "z": x[:, 1]}
    assert leaking(columns, y) == ["x", "z"]
    assert leaking(columns, y, groups=np.tile(np.arange(60), 20)) == []


def test_the_only_column_is_not_a_leak(rng):
    y = rng.integers(0, 2, 500)
    assert leaking({"x": y + 0.01 * rng.normal(size=500)}, y) == []


def test_too_few_rows_to_tell(rng):
    y = np.arange(200) % 100
    assert leaking({"x": y.astype(float), "z": rng.normal(size=200)}, y) == []
    y = np.arange(30) % 2
    assert leaking({"x": y.astype(float), "z": rng.normal(size=30)}, y) == []
