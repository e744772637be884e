import numpy as np
import pytest

from selfcal import SelfCalibratedClassifier, recipes
from selfcal._support.jobs import end_idle_workers

CANDIDATES = ("boosting-small", "mlp", "discriminant", "linear")


@pytest.fixture(scope="session")
def data():
    """Rows whose features take more than a megabyte, from which on they are sent to workers apart from the calls."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3_000)
    X = rng.normal(size=(len(y), 110))
    X[:, :3] += 1.5 * np.eye(3)[y]
    return X, y


@pytest.fixture(scope="session")
def fit(data):
    """Fits a small `auto` to these rows, with enough time."""

    def fit(**settings):
        method = recipes.auto(candidates=CANDIDATES, folds=2, repeats=1)
        common = {"max_epochs": 8, "hidden": (16,), "time_budget": 3600.0, "random_state": 0}
        return SelfCalibratedClassifier(method, **common | settings).fit(*data)

    return fit


@pytest.fixture(scope="session")
def serial(fit):
    return fit(n_jobs=1)


@pytest.fixture
def same(data, serial):
    """Whether a classifier is the one that a single process fits, to the bit."""

    def check(found):
        np.testing.assert_array_equal(found.predict_proba(data[0]), serial.predict_proba(data[0]))
        np.testing.assert_array_equal(found.out_of_fold_, serial.out_of_fold_)
        for one, other in zip(found.selection_, serial.selection_, strict=True):
            assert one | {"seconds": 0} == other | {"seconds": 0}

    return check


@pytest.fixture(autouse=True)
def _fresh_workers():
    """Workers of joblib stay for a while, with the environment of the test that started them."""
    yield
    end_idle_workers()
