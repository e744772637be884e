"""The engine: the parts of a method, and the training loop that runs any of them."""

from selfcal.training.batches import TensorBatches
from selfcal.training.clipping import Clipped
from selfcal.training.engine import TrainingEvent, TrainingResult, train
from selfcal.training.history import History
from selfcal.training.image_batches import ImageBatches
from selfcal.training.interfaces import (
    BatchTransform,
    Calibrator,
    DataSelection,
    Hypergradient,
    Loss,
    Objective,
    OptimizerRule,
    OuterModel,
    Problem,
    Trajectory,
)
from selfcal.training.problem import BilevelProblem
from selfcal.training.recipe import Recipe
from selfcal.training.step import BilevelStep
from selfcal.training.types import Batch, OuterParams, Output, Sizes

__all__ = [
    "Batch",
    "BatchTransform",
    "BilevelProblem",
    "BilevelStep",
    "Calibrator",
    "Clipped",
    "DataSelection",
    "History",
    "Hypergradient",
    "ImageBatches",
    "Loss",
    "Objective",
    "OptimizerRule",
    "OuterModel",
    "OuterParams",
    "Output",
    "Problem",
    "Recipe",
    "Sizes",
    "TensorBatches",
    "TrainingEvent",
    "TrainingResult",
    "Trajectory",
    "train",
]
