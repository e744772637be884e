"""Our calibrators against scikit-learn's, which sees the scores that ours make of the logits."""

import numpy as np
import pytest
from scipy.special import log_softmax, logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression

from selfcal import calibrators


class Passes(ClassifierMixin, BaseEstimator):
    """A classifier whose decision values are its input."""

    def __init__(self, n_classes=3):
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)

    def fit(self, X, y, sample_weight=None):
        return self

    def decision_function(self, X):
        return X if self.n_classes > 2 else X[:, 1] - X[:, 0]

    def predict(self, X):
        return X.argmax(axis=1)


def scikit_learn(method, scores, y, sample_weight=None):
    model = CalibratedClassifierCV(Passes(scores.shape[1]), method=method, ensemble=False, cv=2)
    return model.fit(scores, y, sample_weight=sample_weight)


def log_odds(z):
    """What scikit-learn should see of each class; of two classes it takes the difference itself."""
    return z if z.shape[1] == 2 else logit(softmax(z, axis=1))


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def rows(request, logits):
    y, z, weight = logits
    return y, z, weight if request.param else None


def test_temperature_equals_scikit_learn(rows):
    """Of two classes scikit-learn makes the logits (-x, x): half our temperature, the same probabilities."""
    y, z, weight = rows
    theirs = scikit_learn("temperature", z, y, weight).predict_proba(z)
    ours = calibrators.TemperatureScaling().fit(z, y, weight)
    np.testing.assert_allclose(ours.predict_proba(z), theirs, atol=1e-7)
    assert ours.temperature_ == pytest.approx(1.8, abs=0.25)


def test_platt_scaling_equals_scikit_learn(rows):
    y, z, weight = rows
    scores = log_odds(z)
    theirs = scikit_learn("sigmoid", scores, y, weight).predict_proba(scores)
    ours = calibrators.PlattScaling(safeguard=False).fit(z, y, weight)
    np.testing.assert_allclose(ours.predict_proba(z), theirs, atol=1e-7)


def test_isotonic_calibration_equals_scikit_learn_but_for_zero_and_one(rows):
    """Where scikit-learn says that something is impossible or certain, we do not."""
    y, z, weight = rows
    scores = log_odds(z)
    model = scikit_learn("isotonic", scores, y, weight)
    curves = model.calibrated_classifiers_[0].calibrators
    columns = scores.T if len(curves) > 1 else [scores[:, 1] - scores[:, 0]]
    said = np.column_stack([curve.predict(x) for curve, x in zip(curves, columns, strict=True)])
    inner = ((said > 1e-9) & (said < 1 - 1e-9)).all(axis=1)
    ours = calibrators.IsotonicCalibration(safeguard=False).fit(z, y, weight).predict_proba(z)
    np.testing.assert_allclose(ours[inner], model.predict_proba(scores)[inner], atol=1e-9)
    assert 0.3 < inner.mean() < 1
    assert ours.min() > 0
    assert ours.max() < 1


@pytest.mark.parametrize("name", ["MatrixScaling", "DirichletCalibration"])
def test_matrices_equal_logistic_regression_of_scikit_learn(rows, name):
    y, z, weight = rows
    features = z if name == "MatrixScaling" else log_softmax(z, axis=1)
    reference = LogisticRegression(C=np.inf, solver="newton-cg", tol=1e-10)  # its L-BFGS stops early
    model = reference.fit(features, y, sample_weight=weight)
    ours = getattr(calibrators, name)(l2=0, odir=0, safeguard=False).fit(z, y, weight)
    np.testing.assert_allclose(ours.predict_proba(z), model.predict_proba(features), atol=1e-6)
