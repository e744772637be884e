"""Writes the models that later versions must still read: ``python -m tests.stored_models``, once for each release.

`sealed` makes the hashes of a changed model right again, so that a test reaches what is checked behind them.
"""

import hashlib
import json
import pathlib
import warnings

import numpy as np

import selfcal
from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs

FOLDER = pathlib.Path(__file__).parent / "data" / "models"
X, CODES = Blobs(std=1.7).sample(200, seed=0)
MODELS = {
    "auto": (recipes.auto(folds=3, repeats=1, candidates=["boosting-small", "discriminant", "tabm"]), CODES),
    "bo4sc": ("bo4sc", np.array(["ärger", "猫", "🦉", "", "a\nb"])[CODES]),
    "dirichlet": ("dirichlet", CODES),
    "histogram": ("histogram", CODES > 2),
    "isotonic": ("isotonic", CODES.astype(np.float32)),
    "isoreg": ("isoreg", CODES),
    "scaling_binning": ("scaling_binning", CODES.astype(np.uint8)),
    "vector": ("vector", np.array(["a", "b", "c", "d", "e"], dtype=object)[CODES]),
}
"""Method and labels of each: several models, none or one calibrator, with curves, arrays, and a part of its own."""


ROWS, _ = Blobs(std=1.7).sample(10, seed=2)
"""New rows: the edges of bins are confidences in rows of the fit, where rounding would decide about the side."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def ended(text):
    """A model.json without its end, with the hash that belongs there."""
    return text + f',\n "sha256": "{sha256(text)}"\n}}'.encode()


def without_end(text):
    return text[: -len(ended(b""))]


def sealed(files):
    """The files of a model by name, with all hashes in model.json as they should be."""
    description = json.loads(files["model.json"])
    description.pop("sha256", None)
    for name in files.keys() - {"model.json"}:
        description["files"][name] = {"bytes": len(files[name]), "sha256": sha256(files[name])}
    return files | {"model.json": ended(json.dumps(description).encode().removesuffix(b"}"))}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def changed(folder, change):
    """Change what model.json says."""
    description = json.loads((folder / "model.json").read_bytes())
    change(description)
    files = sealed(contents(folder) | {"model.json": json.dumps(description).encode()})
    (folder / "model.json").write_bytes(files["model.json"])
    return folder


def outputs(model):
    named = {name: getattr(model, name)(ROWS).tolist() for name in ("logits", "predict_proba", "confidence")}
    return named | {"predict": model.predict(ROWS).tolist(), "dtype": model.classes_.dtype.name}


def main():
    for name, (method, y) in MODELS.items():
        model = SelfCalibratedClassifier(method, hidden=(5,), max_epochs=40, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = model.fit(X, y).save(FOLDER / selfcal.__version__ / name, metrics={"rows": len(X)})
        (folder.parent / f"{name}.expected.json").write_text(json.dumps(outputs(model)))


if __name__ == "__main__":
    main()
