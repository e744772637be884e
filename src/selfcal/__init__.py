"""Train neural-network classifiers whose confidence means what it says.

Everything public is importable from here; torch is loaded only when a name that needs it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from selfcal import (
        calibrators,
        datasets,
        errors,
        export,
        hypergradients,
        losses,
        metrics,
        models,
        objectives,
        optimizers,
        outer,
        plots,
        recipes,
        reject,
        storage,
        transforms,
    )
    from selfcal._types import Batch, Output
    from selfcal.batches import TensorBatches
    from selfcal.calibrated_model import CalibratedModel
    from selfcal.classifier import SelfCalibratedClassifier
    from selfcal.engine import TrainingResult, train
    from selfcal.history import History
    from selfcal.image_batches import ImageBatches
    from selfcal.predictions import Predictions
    from selfcal.problem import BilevelProblem
    from selfcal.recipe import Recipe
    from selfcal.reject import ABSTAIN, SelectiveClassifier
    from selfcal.reporting import report
    from selfcal.step import BilevelStep

_HOME = {
    "ABSTAIN": "reject",
    "Batch": "_types",
    "BilevelProblem": "problem",
    "BilevelStep": "step",
    "CalibratedModel": "calibrated_model",
    "History": "history",
    "ImageBatches": "image_batches",
    "Output": "_types",
    "Predictions": "predictions",
    "Recipe": "recipe",
    "SelectiveClassifier": "reject",
    "SelfCalibratedClassifier": "classifier",
    "TensorBatches": "batches",
    "TrainingResult": "engine",
    "report": "reporting",
    "train": "engine",
}

__all__ = [
    "ABSTAIN",
    "Batch",
    "BilevelProblem",
    "BilevelStep",
    "CalibratedModel",
    "History",
    "ImageBatches",
    "Output",
    "Predictions",
    "Recipe",
    "SelectiveClassifier",
    "SelfCalibratedClassifier",
    "TensorBatches",
    "TrainingResult",
    "calibrators",
    "datasets",
    "errors",
    "export",
    "hypergradients",
    "losses",
    "metrics",
    "models",
    "objectives",
    "optimizers",
    "outer",
    "plots",
    "recipes",
    "reject",
    "report",
    "storage",
    "train",
    "transforms",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'selfcal' has no attribute {name!r}")
    home = import_module(f"selfcal.{_HOME.get(name, name)}")
    return getattr(home, name) if name in _HOME else home


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
