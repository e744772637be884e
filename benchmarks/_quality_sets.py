"""What the methods are judged on: generated sets, tables and small images, with clean or wrong training labels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from numpy.typing import NDArray

from selfcal import datasets
from selfcal._support.checks import Float, Int, one_of
from selfcal.datasets import load_images, stratified_split
from selfcal.errors import ConfigError
from selfcal.tabular.features import FeatureGroups
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io import read_table
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.target import read_target

TRAINING_ROWS, TEST_ROWS, TEST_SEED = 1000, 100_000, 1_000_003
MOST_TABLE_ROWS, TABLE_TRAINING_SHARE = 5000, 0.6
IMAGES, IMAGE_FILE, IMAGE_TRAINING_ROWS, IMAGE_TEST_ROWS = "fashion-mnist", "fashion_mnist.npz", 2000, 5000
MISSING = "(missing)"
"""The last category of a column with missing cells, in the names of `Preprocessor`."""

NOISE_SEED = 7_000_003
"""Added to the seed of a cell, so that the rows with wrong labels do not depend on how the rows were drawn."""


@dataclass(frozen=True)
class Task:
    """Numbers of about unit size and class codes to learn from, and rows to be judged on.

    Attributes:
        X: Training rows.
        y: Their labels, some of them wrong in a noisy variant.
        X_test: Rows to judge on.
        y_test: Their true labels.
        table: The training rows with one column for each of the table, categories and missing values as such.
        table_test: The rows to judge on, in the same form.
        n_classes: How many classes there are.
        posterior: The true probabilities of the test rows, where they are known.
        wrong: Which training labels were changed.
        groups: The columns of `X` that encode categories and missing values of the table.
    """

    X: Float
    y: Int
    X_test: Float
    y_test: Int
    table: pd.DataFrame
    table_test: pd.DataFrame
    n_classes: int
    posterior: Float | None
    wrong: NDArray[np.bool_]
    groups: FeatureGroups | None = None

    def with_wrong_labels(self, share: float, seed: int) -> Task:
        """Give that fraction of the training rows another label, all others being equally likely."""
        rng = np.random.default_rng(NOISE_SEED + seed)
        rows = rng.permutation(len(self.y))[: round(share * len(self.y))]
        y, wrong = self.y.copy(), np.zeros(len(self.y), dtype=bool)
        y[rows] = (y[rows] + rng.integers(1, self.n_classes, len(rows))) % self.n_classes
        wrong[rows] = True
        return replace(self, y=y, wrong=wrong)


def generated_sets() -> list[str]:
    """The sets whose posterior is known."""
    return list(datasets.paper_datasets())


def sets_in(folder: Path | None) -> list[str]:
    """The generated sets, and what lies in the folder."""
    if folder is None:
        return generated_sets()
    if not folder.is_dir():
        raise ConfigError(
            f"--data must be a folder with tab_NAME.csv.gz and {IMAGE_FILE}; there is no {folder}."
        )
    tables = sorted(path.name[len("tab_") : -len(".csv.gz")] for path in folder.glob("tab_*.csv.gz"))
    return [*generated_sets(), *tables, *[IMAGES] * (folder / IMAGE_FILE).exists()]


def kind_of(name: str) -> str:
    """Whether a set is "generated", a "table" or "images"."""
    if name in generated_sets():
        return "generated"
    return "images" if name == IMAGES else "table"


def load(name: str, seed: int, noise: float, folder: Path | None, scale: float = 1.0) -> Task:
    """The task of one set, seed and fraction of wrong labels; the same for every method.

    Args:
        name: One of `sets_in(folder)`.
        seed: Which rows are trained on, and which labels are wrong.
        noise: The fraction of training labels that are wrong.
        folder: Where tables and images lie.
        scale: The fraction of training and test rows to use; less than one only tries things out.
    """
    one_of("set", name, sets_in(folder))
    makers: dict[str, Callable[[], Task]] = {
        "generated": lambda: _generated(name, seed, scale),
        "table": lambda: table_task(
            table_file(_in(folder), name), seed, round(scale * MOST_TABLE_ROWS), TABLE_TRAINING_SHARE
        ),
        "images": lambda: _images(_in(folder), seed, scale),
    }
    task = makers[kind_of(name)]()
    return task.with_wrong_labels(noise, seed) if noise else task


def _in(folder: Path | None) -> Path:
    assert folder is not None  # otherwise the set would be unknown
    return folder


def table_file(folder: Path, name: str) -> Path:
    """Where the table of that name lies."""
    return folder / f"tab_{name}.csv.gz"


def task_from(
    train: tuple[Float, Int],
    test: tuple[Float, Int],
    posterior: Float | None = None,
    columns: Callable[[Float], pd.DataFrame] = lambda X: _frame(X.T),
) -> Task:
    """The task of rows and labels to train on, and of rows and labels to judge by."""
    n_classes = int(max(train[1].max(), test[1].max())) + 1
    tables = columns(train[0]), columns(test[0])
    return Task(*train, *test, *tables, n_classes, posterior, np.zeros(len(train[1]), dtype=bool))


def _frame(columns: Iterable[Any]) -> pd.DataFrame:
    """Columns with names that every library accepts."""
    return pd.DataFrame({f"column {i}": values for i, values in enumerate(columns)})


def columns_of(encoder: Preprocessor, X: Float) -> pd.DataFrame:
    """Encoded rows with one column for each of the table: categories, and numbers that may be missing.

    The numbers stay scaled, which makes no difference to trees. A category that was not seen is missing, too.
    """
    place = {name: i for i, name in enumerate(encoder.feature_names)}
    numbers = [column["name"] for column in encoder.inputs if "categories" not in column]
    categories = [column["categories"] for column in encoder.inputs if "categories" in column]

    def number(name: str) -> Float:
        missing = place.get(f"{name} is missing")
        return X[:, place[name]] if missing is None else np.where(X[:, missing], np.nan, X[:, place[name]])

    def category(levels: list[str], block: Float) -> pd.Categorical:
        known = [level for level in levels if level != MISSING]
        codes = np.where(block[:, : len(known)].any(axis=1), block.argmax(axis=1), -1)
        return pd.Categorical.from_codes(codes, known)

    ends = np.cumsum([len(levels) for levels in categories])
    blocks = np.split(X[:, X.shape[1] - ends[-1] :], ends[:-1], axis=1) if categories else []
    return _frame([*map(number, numbers), *map(category, categories, blocks)])


def _generated(name: str, seed: int, scale: float) -> Task:
    X, y = datasets.paper_datasets()[name].sample(round(scale * TRAINING_ROWS), seed=seed)
    X_test, y_test, posterior = _judged(name, round(scale * TEST_ROWS))
    mean, spread = X.mean(axis=0), X.std(axis=0)
    return task_from(((X - mean) / spread, y), ((X_test - mean) / spread, y_test), posterior)


@functools.cache
def _judged(name: str, rows: int) -> tuple[Float, Int, Float]:
    source = datasets.paper_datasets()[name]
    X, y = source.sample(rows, seed=TEST_SEED)
    return X, y, source.posterior(X)


def table_task(path: Path, seed: int, max_rows: int, training_share: float) -> Task:
    """The task of a table: that many of its rows at most, and a fraction of them to train on."""
    table, codes = _read(path)
    (kept,) = stratified_split(codes, (min(len(codes), max_rows),), seed=seed)
    train, test = (
        kept[part] for part in stratified_split(codes[kept], (training_share, 1 - training_share), seed)
    )
    encoder = Preprocessor().fit(table[train], infer_schema(table[train]))
    rows = [(encoder.transform(table[part]), codes[part]) for part in (train, test)]
    task = task_from(rows[0], rows[1], columns=partial(columns_of, encoder))
    return replace(task, groups=encoder.groups)


@functools.cache
def _read(path: Path) -> tuple[pl.DataFrame, Int]:
    table = read_table(str(path))
    target = table.columns[-1]
    return table.drop(target), read_target(table, target).codes


def _images(folder: Path, seed: int, scale: float) -> Task:
    images = load_images(IMAGES, folder)
    parts = []
    for pixels, labels, size in (
        (images.x_train, images.y_train, IMAGE_TRAINING_ROWS),
        (images.x_test, images.y_test, IMAGE_TEST_ROWS),
    ):
        (rows,) = stratified_split(labels, (round(scale * size),), seed=seed)
        parts.append((pixels[rows].reshape(len(rows), -1).astype(np.float64) / 255, labels[rows]))
    (X, y), (X_test, y_test) = parts
    mean, spread = X.mean(), X.std()  # one scale for all pixels: those at the rim hardly vary
    return task_from(((X - mean) / spread, y), ((X_test - mean) / spread, y_test))
