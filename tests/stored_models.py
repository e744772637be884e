"""Writes the models that later versions must still read: ``python -m tests.stored_models``, once for each release."""

import json
import pathlib
import warnings

import numpy as np

import selfcal
from selfcal import SelfCalibratedClassifier
from selfcal.datasets import Blobs

FOLDER = pathlib.Path(__file__).parent / "data" / "models"
X, CODES = Blobs(std=1.7).sample(200, seed=0)
MODELS = {
    "bo4sc": ("bo4sc", np.array(["ärger", "猫", "🦉", "", "a\nb"])[CODES]),
    "histogram": ("histogram", CODES > 2),
    "isotonic": ("isotonic", CODES.astype(np.float32)),
    "isoreg": ("isoreg", CODES),
    "scaling_binning": ("scaling_binning", CODES.astype(np.uint8)),
    "vector": ("vector", np.array(["a", "b", "c", "d", "e"], dtype=object)[CODES]),
}
"""Method and labels of each; classes without a calibrator, with curves, with arrays, and with a part of its own."""


def outputs(model):
    rows = X[:10]
    named = {name: getattr(model, name)(rows).tolist() for name in ("logits", "predict_proba", "confidence")}
    return named | {"predict": model.predict(rows).tolist(), "dtype": model.classes_.dtype.name}


def main():
    for name, (method, y) in MODELS.items():
        model = SelfCalibratedClassifier(method, hidden=(5,), max_epochs=40, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = model.fit(X, y).save(FOLDER / selfcal.__version__ / name, metrics={"rows": len(X)})
        (folder.parent / f"{name}.expected.json").write_text(json.dumps(outputs(model)))


if __name__ == "__main__":
    main()
