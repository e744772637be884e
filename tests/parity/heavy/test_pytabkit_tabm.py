"""`network="tabm"` against `TabM_D_Classifier` of pytabkit 1.7: other code, the same structure, the same log loss."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from selfcal import SelfCalibratedClassifier, recipes

pytabkit = pytest.importorskip("pytabkit", reason="pytabkit is not installed")

FOLDS, MEMBERS, WIDTH, BATCH, RATE, EPOCHS, ROWS = 3, 8, 64, 64, 0.004, 100, 400


def theirs(X, y, seed):
    return pytabkit.TabM_D_Classifier(
        arch_type="tabm",
        tabm_k=MEMBERS,
        d_block=WIDTH,
        n_blocks=2,
        num_emb_type="pwl",
        num_emb_n_bins=16,
        d_embedding=4,
        lr=RATE,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        n_cv=FOLDS,
        val_metric_name="cross_entropy",
        random_state=seed,
        device="cpu",
        n_threads=1,
        verbosity=0,
    ).fit(X, y)


def ours(X, y, seed):
    return SelfCalibratedClassifier(
        recipes.auto(candidates=["tabm"], folds=FOLDS),
        hidden=(WIDTH, WIDTH),
        learning_rate=RATE,
        batch_size=BATCH,
        max_epochs=EPOCHS,
        random_state=seed,
    ).fit(X, y)


def row_losses(fit, rows, seed):
    train, test, y_train, y_test = rows
    scaler = StandardScaler().fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice
        probs = fit(scaler.transform(train), y_train, seed).predict_proba(scaler.transform(test))
    return -np.log(np.maximum(probs[np.arange(len(y_test)), y_test], 1e-9))


@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_log_losses_agree_within_noise(load):
    """Four standard errors of the paired difference, and a tenth of the log loss for the draw of the networks."""
    X, y = load(return_X_y=True)
    splits = [train_test_split(X, y, train_size=ROWS, stratify=y, random_state=seed) for seed in range(2)]
    own, other = (
        np.concatenate([row_losses(fit, rows, seed) for seed, rows in enumerate(splits)])
        for fit in (ours, theirs)
    )
    difference = own - other
    noise = 4 * difference.std() / np.sqrt(len(difference)) + 0.1 * other.mean()
    assert abs(difference.mean()) < noise, (own.mean(), other.mean())
