"""CPUs with other instruction sets: nothing crashes, and answers agree within what rounding makes of a training."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

SETTINGS = {
    "AVX2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "no AVX": {
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "ATEN_CPU_CAPABILITY": "default",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
}
PROGRAM = """
import json, torch
from selfcal import SelfCalibratedClassifier, datasets, models, optimizers, recipes, train

torch.set_num_threads(1)
X, y = datasets.Blobs(std=1.7).sample(300, seed=0)
answers = {}
for method in ("standard", "bo4sc", "crossfit", "vector"):
    model = SelfCalibratedClassifier(method, max_epochs=30, random_state=0).fit(X, y)
    answers[method] = model.predict_proba(X).tolist()
images, labels = torch.linspace(-1, 1, 40 * 784).sin().view(40, 1, 28, 28), torch.arange(40) % 10
torch.manual_seed(0)
network = models.resnet18(10, width=4, channels=1)
train(network, (images, labels), recipe=recipes.standard(), optimizer=optimizers.SGD(lr=0.01), max_steps=4)
answers["images"] = network(images).softmax(dim=1).tolist()
print(json.dumps(answers))
"""


def answers(**environment):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return {name: np.array(probs) for name, probs in json.loads(ran.stdout).items()}


@pytest.fixture(scope="module")
def here():
    return answers()


@pytest.mark.fault("F16")
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_answers_agree(setting, here):
    for name, probs in answers(**setting).items():
        assert np.abs(probs - here[name]).max() < 0.01, name
