import sys

import matplotlib as mpl
import pytest


@pytest.fixture(autouse=True)
def _global_state_stays_as_it_was():
    before = dict(mpl.rcParams)
    yield
    assert dict(mpl.rcParams) == before
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        assert pyplot.get_fignums() == []
