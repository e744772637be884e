"""Random and mutated `preprocessor.skops` files: a model or `ModelFormatError` comes out, nothing else."""

import io
import random
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal.errors import ModelFormatError, SelfcalError
from selfcal.workflows import table_model
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import people, shelf
from tests.faults.test_hostile_models import flip, replace_value, splice

__all__ = ["shelf"]  # the fixture

NAME = "preprocessor.skops"
LIMITS = settings(database=None)
TABLE = people(5)


@pytest.fixture(scope="module")
def stored(shelf):
    """The members of a model's archive, and a function that loads the model with other bytes in its place."""
    folder = shelf / "people-model"
    with zipfile.ZipFile(folder / NAME) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    classifier, given = table_model.SelfCalibratedClassifier.load(folder), []

    def load(data):
        given[:] = [data]
        return TableModel.load(folder)

    with pytest.MonkeyPatch.context() as patch:  # the network stays, and the hash of the archive is right
        patch.setattr(table_model.SelfCalibratedClassifier, "load", lambda path: classifier)
        patch.setattr(table_model, "read_extra", lambda path, name: given[0])
        yield members, load


def use(load, data):
    """Go on with the model as far as it goes."""
    with suppress(ModelFormatError):
        model = load(data)
        with suppress(SelfcalError):
            model.predict(TABLE)


def packed(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def mutated(members, rng):
    """The archive changed from without, or one of its members from within."""
    if rng.random() < 0.2:
        return rng.choice([flip, splice])(packed(members), rng)
    name = rng.choice(["schema.json", "schema.json", *members])
    change = rng.choice([flip, splice, *([replace_value] * 6 if name == "schema.json" else [])])
    return packed(members | {name: change(members[name], rng)})


@pytest.mark.fault("S4")
@LIMITS
@given(data=st.binary(max_size=200).flatmap(lambda b: st.sampled_from([b, b"PK\x03\x04" + b])))
def test_random_bytes(stored, data):
    use(stored[1], data)


@pytest.mark.fault("S4")
@LIMITS
@given(seed=st.integers(0, 2**64))
def test_mutated_archives(stored, seed):
    use(stored[1], mutated(stored[0], random.Random(seed)))


def test_the_original_goes_all_the_way(stored):
    members, load = stored
    assert load(packed(members)).predict(TABLE).probs.shape == (5, 3)
