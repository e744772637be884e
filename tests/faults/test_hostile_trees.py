"""Model folders whose trees were changed by somebody who means ill: only `ModelFormatError`, or other numbers."""

import json
import random
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from selfcal import SelfCalibratedClassifier
from selfcal.ensembles.modules import EnsembleModule
from selfcal.errors import ModelFormatError
from selfcal.models.trees import TreeColumns, Trees
from selfcal.tabular.features import FeatureGroups
from tests.faults.test_hostile_models import Models, X, Y, refused, survives, written
from tests.stored_models import contents

GROUPS = FeatureGroups(missing=((0, 2),), categories=((3, 6),))
ROWS = np.column_stack([X, np.arange(len(X)) % 5 == 0, np.eye(3)[np.arange(len(X)) % 3]])


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A model with boosting and a forest in it."""
    model = SelfCalibratedClassifier("standard", standardize=False, max_epochs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(ROWS, Y)
    columns = TreeColumns(6, GROUPS)
    rows = columns(torch.from_numpy(ROWS.astype(np.float32))).numpy()
    boosting = HistGradientBoostingClassifier(
        max_iter=2, categorical_features=columns.categorical, random_state=0
    )
    forest = RandomForestClassifier(2, max_depth=3, random_state=0)
    model.module_ = EnsembleModule([Trees.of(m.fit(rows, Y), columns, 5) for m in (boosting, forest)]).eval()
    folder = model.save(tmp_path_factory.mktemp("good") / "trees")
    again = SelfCalibratedClassifier.load(folder)
    assert np.array_equal(again.predict_proba(ROWS), model.predict_proba(ROWS))
    assert repr(again.module_) == repr(model.module_)
    return Models([contents(folder)])


def boosting_of(description):
    return description["network"]["members"][0]["trees"]


def forest_of(description):
    return description["network"]["members"][1]["trees"]


BAD_SPECS = {
    "no spec": (lambda d: d["network"]["members"].insert(0, {"trees": []}), "described by their sizes"),
    "no size": (lambda d: boosting_of(d).pop("n_splits"), "n_splits"),
    "a size of text": (lambda d: boosting_of(d).update(n_trees="10"), "n_trees must be a whole number"),
    "no trees": (lambda d: boosting_of(d).update(n_trees=0), "n_trees must be a whole number of at least 1"),
    "splits below zero": (lambda d: boosting_of(d).update(n_splits=-1), "n_splits must be a whole number"),
    "more trees": (lambda d: boosting_of(d).update(n_trees=15), "do not fit the network"),
    "absurdly many trees": (lambda d: boosting_of(d).update(n_trees=5 * 2**60), "holds no usable model"),
    "trees beyond any integer": (lambda d: boosting_of(d).update(n_trees=5 * 10**40), "holds no usable model"),
    "absurdly many splits": (lambda d: boosting_of(d).update(n_splits=2**61), "holds no usable model"),
    "many category splits": (lambda d: boosting_of(d).update(n_category_splits=10**12), "do not fit the network"),
    "boosting as a forest": (lambda d: boosting_of(d).update(n_probabilities=12), "do not fit the network"),
    "a forest as boosting": (lambda d: forest_of(d).update(n_probabilities=None, n_trees=5), "do not fit"),
    "no kind": (lambda d: forest_of(d).update(n_probabilities="no"), "n_probabilities must be a whole number"),
    "no probabilities": (lambda d: forest_of(d).update(n_probabilities=0), "n_probabilities must be a whole number"),
    "absurdly many": (lambda d: forest_of(d).update(n_probabilities=2**62), "holds no usable model"),
    "a class twice": (lambda d: boosting_of(d).update(outputs=[0, 1, 2, 3, 3]), "must be different classes"),
    "a class that is none": (lambda d: boosting_of(d).update(outputs=[0, 1, 2, 3, 5]), "must be different classes"),
    "no class": (lambda d: boosting_of(d).update(outputs=[]), "must be different classes"),
    "part of a round": (lambda d: boosting_of(d).update(outputs=[0, 1, 2]), "must be a multiple of the 3"),
    "groups of other features": (lambda d: boosting_of(d).update(categories=[[3, 10**12]]), "of the 6 features"),
    "groups of text": (lambda d: boosting_of(d).update(missing="01"), "missing must be a list of pairs"),
    "fewer levels": (lambda d: boosting_of(d).update(categories=[[3, 5]]), "do not fit the network"),
    "many members": (
        lambda d: d["network"]["members"].extend([d["network"]["members"][0]] * 5_000), r"More than \d+ networks"),
}  # fmt: skip


@pytest.mark.fault("S2")
@pytest.mark.parametrize(("change", "message"), BAD_SPECS.values(), ids=BAD_SPECS.keys())
def test_malformed_specs(tmp_path, good, change, message):
    description = json.loads(good[0]["model.json"])
    change(description)
    refused(written(tmp_path / "model", good[0] | {"model.json": json.dumps(description).encode()}), message)


def changed_tensors(files, change, member=0):
    tensors = load(files["model.safetensors"])
    name = f"network.members.{member}."
    arrays = {
        key.removeprefix(name): values.copy() for key, values in tensors.items() if key.startswith(name)
    }
    change(arrays)
    return files | {
        "model.safetensors": save(tensors | {name + key: values for key, values in arrays.items()})
    }


BAD_TENSORS = {
    "a column that is not there": lambda a: a["column"].__setitem__(0, 4),
    "a column below zero": lambda a: a["column"].__setitem__(-1, -1),
    "a split that is not there": lambda a: a["category"].__setitem__(0, len(a["level_right"])),
    "a split far below zero": lambda a: a["category"].__setitem__(0, -(2**31)),
    "a category that is a number": lambda a: (a["category"].__setitem__(0, 0), a["column"].__setitem__(0, 0)),
    "a threshold of infinity": lambda a: a["threshold"].__setitem__(0, np.inf),
    "a value that is none": lambda a: a["value"].__setitem__(0, np.nan),
    "a value of infinity": lambda a: a["value"].__setitem__(0, -np.inf),
    "all nodes are leaves": lambda a: a["is_leaf"].fill(True),
    "no node is a leaf": lambda a: a["is_leaf"].fill(False),
    "leaves come first": lambda a: a.update(is_leaf=np.sort(a["is_leaf"])[::-1].copy()),
    "other integers": lambda a: a.update(column=a["column"].astype(np.int64)),
    "fewer values": lambda a: a.update(value=a["value"][1:]),
}


@pytest.mark.fault("S2")
@pytest.mark.parametrize("change", BAD_TENSORS.values(), ids=BAD_TENSORS.keys())
def test_malformed_tensors(tmp_path, good, change):
    refused(written(tmp_path / "model", changed_tensors(good[0], change)))


BAD_FORESTS = {
    "an output that is not there": lambda a: a["leaf_output"].__setitem__(0, 5),
    "an output below zero": lambda a: a["leaf_output"].__setitem__(-1, -1),
    "a leaf without": lambda a: exchange(a["leaf_size"], 0, -a["leaf_size"][0]),
    "a leaf below zero": lambda a: exchange(a["leaf_size"], 0, -a["leaf_size"][0] - 1),
    "a leaf of more than all": lambda a: exchange(a["leaf_size"], 0, 6 - a["leaf_size"][0]),
    "more than there are": lambda a: a["leaf_size"].__setitem__(a["leaf_size"].argmin(), a["leaf_size"].min() + 1),
    "fewer than there are": lambda a: a["leaf_size"].__setitem__(a["leaf_size"].argmax(), a["leaf_size"].max() - 1),
    "a value that is none": lambda a: a["value"].__setitem__(0, np.nan),
    "other integers": lambda a: a.update(leaf_output=a["leaf_output"].astype(np.int32)),
    "fewer leaves": lambda a: a.update(leaf_size=a["leaf_size"][1:]),
    "a probability of each class": lambda a: a.update(value=np.zeros((len(a["leaf_size"]), 5), np.float32)),
}  # fmt: skip


def exchange(size, leaf, difference):
    """Another size of one leaf, at the cost of the next one."""
    size[leaf] += difference
    size[leaf + 1] -= difference


@pytest.mark.fault("S2")
@pytest.mark.parametrize("change", BAD_FORESTS.values(), ids=BAD_FORESTS.keys())
def test_malformed_forests(tmp_path, good, change):
    refused(written(tmp_path / "model", changed_tensors(good[0], change, member=1)))


@pytest.mark.fault("S2")
@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**64))
def test_a_hundred_damaged_models(good, tmp_path_factory, seed):
    survives(tmp_path_factory.getbasetemp() / "damaged", good, seed)


@pytest.mark.fault("S2")
@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**64))
def test_numbers_exchanged_at_random(good, tmp_path_factory, seed):
    """What loads predicts something."""
    rng = random.Random(seed)

    def shuffle(arrays):
        array = arrays[rng.choice(sorted(arrays))]
        i, j = (rng.randrange(max(1, array.size)) for _ in range(2))
        if array.size:
            array.flat[i], array.flat[j] = array.flat[j], array.flat[i]

    files = changed_tensors(good[0], shuffle, member=rng.randrange(2))
    folder = written(tmp_path_factory.getbasetemp() / "exchanged", files)
    with suppress(ModelFormatError):
        probs = SelfCalibratedClassifier.load(folder).predict_proba(ROWS)
        np.testing.assert_allclose(probs.sum(axis=1), 1)
