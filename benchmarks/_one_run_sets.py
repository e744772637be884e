"""The sets of the benchmark of one run against a grid: generated ones, tables and small images."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

from selfcal import datasets
from selfcal._support.checks import Float, Int
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io import read_table
from selfcal.tabular.preprocessing import Preprocessor

GENERATED = ("blobs-1.3", "blobs-1.7", "spiral-2.5", "spiral-3.5")
TABLES = ("pima_diabetes", "vehicle", "german_credit", "segment", "satellite", "spam")
IMAGES = ("digits", "fashion")
ROWS, TEST_ROWS = 800, 4000
"""The most rows to train with, a quarter of them held out, and the most to be judged on."""


class Parts(NamedTuple):
    """The rows of one draw of a set, as features and labels."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    n_classes: int


def parts_of(name: str, seed: int, folder: Path) -> Parts:
    """One draw: rows to train on, rows held out of training, and rows to be judged on."""
    if name in GENERATED:
        source = datasets.paper_datasets()[name]
        (X, y), (X_test, y_test) = (
            source.sample(ROWS, seed=seed),
            source.sample(TEST_ROWS, seed=10_000 + seed),
        )
    else:
        X, y, X_test, y_test = _table(name, seed, folder) if name in TABLES else _images(name, seed, folder)
    fit, held_out = train_test_split(np.arange(len(y)), test_size=0.25, stratify=y, random_state=seed)
    mean, scale = X[fit].mean(axis=0), X[fit].std(axis=0)
    scale[scale < 1e-3] = 1.0

    def tensors(X: Float, y: Int) -> tuple[Tensor, Tensor]:
        scaled = np.clip((X - mean) / scale, -5, 5)
        return torch.tensor(scaled, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)

    n_classes = int(max(y.max(), y_test.max())) + 1
    return Parts(
        tensors(X[fit], y[fit]), tensors(X[held_out], y[held_out]), tensors(X_test, y_test), n_classes
    )


def _table(name: str, seed: int, folder: Path) -> tuple[Float, Int, Float, Int]:
    table = read_table(folder / f"tab_{name}.csv.gz")
    target = table.columns[-1]
    y = np.unique(table[target].to_numpy().astype(str), return_inverse=True)[1]
    train, test = _split(y, seed)
    schema = infer_schema(table[train], target=target)
    features = Preprocessor().fit(table[train], schema)
    return features.transform(table[train]), y[train], features.transform(table[test]), y[test]


def _images(name: str, seed: int, folder: Path) -> tuple[Float, Int, Float, Int]:
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        with np.load(folder / "fashion_mnist.npz") as file:
            X, y = file["x_test"].astype(np.float64), file["y_test"].astype(np.int64)
        X = X.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 14 * 14)
    train, test = _split(y, seed)
    return X[train], y[train], X[test], y[test]


def _split(y: Int, seed: int) -> tuple[Int, Int]:
    train, test = train_test_split(np.arange(len(y)), test_size=0.4, stratify=y, random_state=seed)
    if len(train) > ROWS:
        train, _ = train_test_split(train, train_size=ROWS, stratify=y[train], random_state=seed)
    return train, test[:TEST_ROWS]
