"""Train neural-network classifiers whose confidence means what it says.

Everything public is importable from here; torch is loaded only when a name that needs it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from selfcal._support.lazy_names import lazy_names

__version__ = "0.2.0"

if TYPE_CHECKING:
    from selfcal import (
        calibrators,
        conformal,
        datasets,
        errors,
        hypergradients,
        losses,
        metrics,
        models,
        objectives,
        optimizers,
        outer,
        plots,
        predictive,
        recipes,
        reject,
        selections,
        storage,
        transforms,
        uncertainty,
    )
    from selfcal.conformal import ConformalClassifier
    from selfcal.ensembles import Ensemble
    from selfcal.estimators.calibrated_model import CalibratedModel
    from selfcal.estimators.classifier import SelfCalibratedClassifier
    from selfcal.reject import ABSTAIN, SelectiveClassifier
    from selfcal.reporting import report
    from selfcal.reporting.predictions import Predictions
    from selfcal.storage import export
    from selfcal.training import (
        Batch,
        BilevelProblem,
        BilevelStep,
        History,
        ImageBatches,
        Output,
        Recipe,
        TensorBatches,
        TrainingResult,
        train,
    )

_HOME = {
    "ABSTAIN": "reject",
    "Batch": "training",
    "BilevelProblem": "training",
    "BilevelStep": "training",
    "CalibratedModel": "estimators.calibrated_model",
    "ConformalClassifier": "conformal",
    "Ensemble": "ensembles",
    "History": "training",
    "ImageBatches": "training",
    "Output": "training",
    "Predictions": "reporting.predictions",
    "Recipe": "training",
    "SelectiveClassifier": "reject",
    "SelfCalibratedClassifier": "estimators.classifier",
    "TensorBatches": "training",
    "TrainingResult": "training",
    "report": "reporting",
    "train": "training",
}
_MODULES = {"export": "storage.export"}
"""Public modules whose location differs from their name."""

__all__ = [
    "ABSTAIN",
    "Batch",
    "BilevelProblem",
    "BilevelStep",
    "CalibratedModel",
    "ConformalClassifier",
    "Ensemble",
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
    "conformal",
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
    "predictive",
    "recipes",
    "reject",
    "report",
    "selections",
    "storage",
    "train",
    "transforms",
    "uncertainty",
]


_classes_and_functions = lazy_names(__name__, _HOME)


def __getattr__(name: str) -> object:
    if name in _HOME or name not in __all__:
        return _classes_and_functions(name)
    return import_module(f"selfcal.{_MODULES.get(name, name)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
