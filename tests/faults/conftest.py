import pytest

from selfcal import BilevelStep
from tests.faults.training import Nursery, digest, run


@pytest.fixture(scope="session")
def nursery(tmp_path_factory):
    nursery = Nursery(tmp_path_factory.mktemp("nursery") / "log", PYTHONHASHSEED="1", NO_COLOR="1")
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def undisturbed():
    """The digest of a run that nothing happens to, by recipe."""
    return {name: digest(run(name)) for name in ("standard", "bo4sc", "crossfit")}


@pytest.fixture
def _no_step(monkeypatch):
    """Any training step fails the test."""
    monkeypatch.setattr(BilevelStep, "__call__", lambda *_: pytest.fail("a step was taken"))
