"""`network="tabm"` against `TabM_D_Classifier` of pytabkit 1.7: other code, the same structure, the same log loss."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from selfcal import SelfCalibratedClassifier, models, recipes
from selfcal.metrics import log_loss

pytabkit = pytest.importorskip("pytabkit", reason="pytabkit is not installed")

FOLDS, MEMBERS, WIDTH = 3, 8, 64


def theirs(X, y, seed):
    model = pytabkit.TabM_D_Classifier(
        arch_type="tabm",
        tabm_k=MEMBERS,
        d_block=WIDTH,
        n_blocks=2,
        num_emb_type="pwl",
        num_emb_n_bins=16,
        d_embedding=4,
        n_epochs=100,
        n_cv=FOLDS,
        val_metric_name="cross_entropy",
        random_state=seed,
        device="cpu",
        n_threads=1,
        verbosity=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def ours(X, y, seed):
    method = recipes.auto(candidates=["tabm"], folds=FOLDS)
    return SelfCalibratedClassifier(method, hidden=(WIDTH, WIDTH), max_epochs=100, random_state=seed).fit(
        X, y
    )


@pytest.mark.parametrize(("load", "n_rows"), [(load_breast_cancer, 400), (load_digits, 600)])
def test_log_losses_agree_within_noise(load, n_rows):
    """The mean difference over splits is small beside the log loss, and beside its own spread."""
    X, y = load(return_X_y=True)
    differences, level = [], []
    for seed in range(3):
        train, test, y_train, y_test = train_test_split(
            X, y, train_size=n_rows, stratify=y, random_state=seed
        )
        scaler = StandardScaler().fit(train)
        rows = scaler.transform(train), y_train, seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own, other = (
                log_loss(y_test, fit(*rows).predict_proba(scaler.transform(test))) for fit in (ours, theirs)
            )
        differences.append(own - other)
        level.append(other)
    assert models.FOR_TABLES.count("tabm") == 1
    assert np.mean(differences) < 0.25 * np.mean(level), (differences, level)
