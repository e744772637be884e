"""The kind "realmlp" against RealMLP by its authors, in pytabkit: the parts exactly, the log loss within noise."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.models.layers import PeriodicEmbedding, RobustScaling
from selfcal.optimizers import CosLog

pytabkit = pytest.importorskip("pytabkit", reason="pytabkit, the reference, is not installed")


def their_rows(x):
    from pytabkit.models.data.data import DictDataset, TensorInfo

    return DictDataset({"x_cont": x}, {"x_cont": TensorInfo(feat_shape=[x.shape[1]])})


def test_step_sizes():
    from pytabkit.models.training.scheduling import get_schedule

    schedule = get_schedule("coslog4")
    expected = [schedule.call_time_(time) for time in np.linspace(0, 1, 200, endpoint=False)]
    ours = CosLog(1.0, n_steps=200)
    np.testing.assert_allclose([ours(step) for step in range(1, 201)], expected, atol=1e-9)


def test_scaling():
    from pytabkit.models.nn_models.models import PreprocessingFactory

    x = torch.randn(99, 4, generator=torch.Generator().manual_seed(0)).exp() * torch.tensor(
        [1.0, 9.0, 1.0, 0.0]
    )
    x[:, 2] = (x[:, 2] > 3).float()
    data = their_rows(x)
    factory = PreprocessingFactory(tfms=["median_center", "robust_scale", "smooth_clip"])
    expected = factory.create(data.tensor_infos).fit_transform(data)[1].tensors["x_cont"]
    torch.testing.assert_close(RobustScaling(4).fit(x)(x), expected, rtol=1e-4, atol=1e-4)


def test_embedding():
    from pytabkit.models.nn_models.nn import PLREmbeddingsFactory

    torch.manual_seed(0)
    x, ours = torch.randn(20, 3), PeriodicEmbedding(3, range(3))
    factory = PLREmbeddingsFactory(
        plr_sigma=0.1,
        plr_hidden_1=16,
        plr_hidden_2=4,
        plr_act_name="linear",
        plr_use_densenet=True,
        plr_use_cos_bias=True,
    )
    theirs = factory.fit(their_rows(x))
    pairs = {"frequency": "weight_1", "phase": "bias_1", "weight": "weight_2", "bias": "bias_2"}
    with torch.no_grad():
        for name, their_name in pairs.items():
            parameter, reference = getattr(ours, name), getattr(theirs, their_name)
            assert parameter.shape == reference.shape
            assert 0.1 * parameter.std() == pytest.approx(reference.std(), rel=0.5)
            parameter.copy_(10 * reference)  # the step of these is a tenth of the others'
        expected = theirs.forward_cont(x)
    torch.testing.assert_close(ours(x).roll(-3, dims=1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # Lightning's advice
@pytest.mark.parametrize("load", [load_breast_cancer, load_wine, load_digits])
def test_log_loss(load):
    """Of five folds with a temperature, on half of the rows; they take 256 passes of three layers of 256."""
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X.astype(np.float32), y, test_size=0.5, random_state=0)
    reference = pytabkit.RealMLP_TD_Classifier(
        n_cv=5,
        use_ls=False,
        val_metric_name="ref-ll-ts",
        calibration_method="ts-mix",
        random_state=0,
        device="cpu",
        n_threads=1,
        verbosity=0,
    )
    ours = SelfCalibratedClassifier(recipes.auto(candidates=["realmlp"]), random_state=0, verbose=False)
    losses = [
        -np.log(model.fit(X, y).predict_proba(X_test)[np.arange(len(y_test)), y_test].clip(1e-12))
        for model in (ours, reference)
    ]
    difference = losses[0] - losses[1]
    noise = 3 * difference.std() / np.sqrt(len(y_test))
    assert abs(difference.mean()) < noise + 0.01
    assert losses[0].mean() < 0.25
