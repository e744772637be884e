"""What uncertainty is judged on: rows of known classes, and rows unlike them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_wine

from benchmarks._quality_sets import table_file
from benchmarks.label_audit import read
from selfcal._support.checks import Float, Int
from selfcal.datasets import load_images, stratified_split

TABLES = ("dna_splice", "income_marketing", "letter", "satellite", "segment", "vehicle")
PACKAGED = {"digits": load_digits, "wine": load_wine}
IMAGES, OTHER_IMAGES = "fashion-mnist", "cifar10_small.npz"
MAX_ROWS, IMAGE_TRAINING_ROWS, IMAGE_TEST_ROWS = 5000, 4000, 2000
LEFT_OUT = "a class left out"


@dataclass(frozen=True)
class Task:
    """Rows to train on, rows of the same classes to judge on, and rows unlike them by what they are."""

    X: Float
    y: Int
    X_test: Float
    y_test: Int
    novel: Mapping[str, Float]


def sets_in(folder: Path | None) -> list[str]:
    """The names of the sets that can be loaded: those of scikit-learn, and what lies in the folder."""
    if folder is None:
        return list(PACKAGED)
    tables = [name for name in TABLES if table_file(folder, name).exists()]
    images = [IMAGES] * ((folder / "fashion_mnist.npz").exists() and (folder / OTHER_IMAGES).exists())
    return [*tables, *PACKAGED, *images]


def load(name: str, seed: int, folder: Path | None, scale: float = 1.0) -> Task:
    """The task of one set and seed; the seed decides on rows and on the class that is left out."""
    if name in PACKAGED:
        X, y = PACKAGED[name](return_X_y=True)
        return without_a_class(X, y, seed)
    assert folder is not None  # otherwise there would be no such set
    makers: dict[str, Callable[[], Task]] = {IMAGES: partial(_images, folder, seed, scale)}
    table = partial(read, table_file(folder, name), seed, round(scale * MAX_ROWS))
    return makers.get(name, lambda: without_a_class(*table(), seed))()


def without_a_class(X: Float, y: Int, seed: int) -> Task:
    """One class is unlike the training rows; half of the others are trained on."""
    classes = np.random.default_rng(0).permutation(np.unique(y))
    other = y == classes[seed % len(classes)]
    rows, codes = X[~other], np.unique(y[~other], return_inverse=True)[1]
    train, test = stratified_split(codes, (0.5, 0.5), seed=seed)
    return Task(rows[train], codes[train], rows[test], codes[test], {LEFT_OUT: X[other]})


def _images(folder: Path, seed: int, scale: float) -> Task:
    images = load_images(IMAGES, folder)
    (train,) = stratified_split(images.y_train, (round(scale * IMAGE_TRAINING_ROWS),), seed=seed)
    (test,) = stratified_split(images.y_test, (round(scale * IMAGE_TEST_ROWS),), seed=seed)
    with np.load(folder / OTHER_IMAGES, allow_pickle=False) as photos:
        grey = photos["x_test"].mean(axis=3)[:, 2:-2, 2:-2]
    small = load_digits().images * 255 / 16
    digits = np.pad(np.kron(small, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
    novel = {"CIFAR-10": _pixels(grey), "digits": _pixels(digits)}
    X, X_test = _pixels(images.x_train[train]), _pixels(images.x_test[test])
    return Task(X, images.y_train[train], X_test, images.y_test[test], novel)


def _pixels(images: Float) -> Float:
    return images.reshape(len(images), -1).astype(np.float64) / 255
