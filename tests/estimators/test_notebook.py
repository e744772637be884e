"""The display of a classifier in a notebook."""

import numpy as np
import pytest
import sklearn

from selfcal import SelfCalibratedClassifier, metrics, recipes
from selfcal.datasets import Blobs
from selfcal.estimators.notebook import out_of_fold_report

X, CODES = Blobs(std=1.7).sample(300, seed=0)
Y = np.array(["a", "b", "</script><script>alert(1)</script>", "d", "e"])[CODES]
ENSEMBLE = recipes.crossfit(folds=3)


def fitted(method="temperature", y=Y, sample_weight=None, **settings):
    clf = SelfCalibratedClassifier(method, max_epochs=10, random_state=0, hidden=(8,), **settings)
    return clf.fit(X, y, sample_weight)


@pytest.mark.parametrize("method", ["temperature", "nonsense", "auto"])
def test_its_names_can_be_listed_before_the_fit(method):
    clf = SelfCalibratedClassifier(method)
    assert {"fit", "method"} <= {*dir(clf)}
    assert "SelfCalibratedClassifier" in clf._repr_html_()
    assert "selfcal-report" not in clf._repr_html_()


def test_an_ensemble_shows_a_report_on_its_out_of_fold_predictions():
    clf = fitted(ENSEMBLE)
    report = out_of_fold_report(clf)
    accuracy = metrics.accuracy(Y, clf.out_of_fold_, classes=clf.classes_)
    assert report.methods[0].accuracy.value == pytest.approx(accuracy)
    assert report.rows == len(X)
    html = clf._repr_html_()
    assert html.index("SelfCalibratedClassifier") < html.index("Calibration on out-of-fold predictions")
    assert report.methods[0].verdict.text in html
    assert "<script>alert" not in html
    assert clf._repr_mimebundle_()["text/html"].count("<svg class=") == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"class_weight": "balanced"},
        {"sample_weight": np.linspace(1, 2, len(X))},
        {"n_networks": 1},
        {"noisy_labels": True},
    ],
    ids=lambda s: next(iter(s)),
)
@pytest.mark.filterwarnings("ignore")
def test_no_report_where_it_would_be_on_other_predictions_or_rows(settings):
    clf = fitted(ENSEMBLE, **settings)
    assert out_of_fold_report(clf) is None
    assert "must be measured on rows that it has not seen" in clf._repr_html_()


def test_one_network_says_what_it_knows():
    clf = fitted()
    html = clf._repr_html_()
    assert f"{clf.history_.selection_loss.min():.4f}" in html
    assert "Predictions.of(clf, X_test, y_test)" in html


def test_a_loaded_model(tmp_path):
    clf = SelfCalibratedClassifier.load(fitted(ENSEMBLE).save(tmp_path / "model"))
    assert out_of_fold_report(clf) is None
    assert "must be measured" in clf._repr_html_()


def test_the_text_display_of_scikit_learn_is_kept():
    with sklearn.config_context(display="text"):
        assert "text/html" not in fitted()._repr_mimebundle_()
