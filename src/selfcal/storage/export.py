"""A trained classifier as an ONNX graph: raw numbers in, calibrated probabilities out."""

from __future__ import annotations

import copy
import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from selfcal import calibrators
from selfcal._support.checks import Float
from selfcal._support.files import write_atomically
from selfcal.calibrators.formula import Formula, Head
from selfcal.errors import ConfigError
from selfcal.storage.model import Storable
from selfcal.storage.parts import labels
from selfcal.storage.state import ClassifierState
from selfcal.tabular.preprocessing import Preprocessor


def to_onnx(model: Storable, path: str | os.PathLike[str]) -> Path:
    """Write a fitted classifier as an ONNX file: scaling of columns, network and calibrator in one graph.

    Its input ``X`` is a table of float64 numbers, its output ``probabilities`` has one column for each class;
    their labels are in the metadata of the file, as JSON, under ``classes``. If the model was
    fitted on a data frame, the graph starts where cells have become numbers: missing ones are NaN, and a category is
    its index in the list that is stored, with the names of all columns, under ``inputs`` in the metadata; -1 is a
    category not in the list.

    Args:
        model: A fitted classifier without a calibrator, or with one that is a formula: temperature, vector, matrix
            scaling and the like. Others, made of steps or of a field, are refused.
        path: The file.

    Returns:
        The file.

    Example:
        ``to_onnx(SelfCalibratedClassifier("temperature").fit(X, y), "model.onnx")``, and anywhere else
        ``onnxruntime.InferenceSession("model.onnx").run(None, {"X": X})``.
    """
    check_is_fitted(model)
    state = model._state()
    pipeline: nn.Module = _Pipeline(state, _head(state.calibrator))
    metadata: dict[str, object] = {"classes": labels(state.classes)["values"]}
    n_inputs = state.n_features
    if state.preprocessor is not None:
        pipeline = nn.Sequential(_Encoder(state.preprocessor), pipeline)
        metadata["inputs"] = state.preprocessor.inputs
        n_inputs = len(state.preprocessor.inputs)
    proto = _exported(pipeline.eval(), n_inputs).model_proto
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=json.dumps(value))
    return write_atomically(path, proto.SerializeToString())


class _Encoder(nn.Module):
    """A `Preprocessor` in torch, for cells that are numbers and codes of categories."""

    largest: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, preprocessor: Preprocessor) -> None:
        super().__init__()
        steps = preprocessor.transformer.named_transformers_
        self.sizes = [len(levels) for levels in preprocessor.levels.values()]
        self.n_numbers = len(preprocessor.inputs) - len(self.sizes)
        self.infinite_is_missing = preprocessor.schema.nonfinite == "impute"
        if self.n_numbers:
            scaling = steps["numbers"].named_steps
            self.register_buffer("largest", _OPERATIONS.constant(scaling["scale"].scale_))
            self.register_buffer("mean", _OPERATIONS.constant(scaling["standardize"].mean_))
            self.register_buffer("scale", _OPERATIONS.constant(scaling["standardize"].scale_))
            self.marked: list[int] = steps["missing"].features_.tolist()

    def forward(self, x: Tensor) -> Tensor:
        blocks = []
        if self.n_numbers:
            numbers = x[:, : self.n_numbers]
            missing = torch.isnan(numbers)
            if self.infinite_is_missing:
                missing = missing | torch.isinf(numbers)
            scaled = (numbers / self.largest - self.mean) / self.scale
            blocks.append(torch.where(missing, 0.0, scaled))
            if self.marked:
                blocks.append(missing[:, self.marked].to(x.dtype))
        for place, size in enumerate(self.sizes, start=self.n_numbers):
            codes = torch.arange(size, dtype=x.dtype)
            blocks.append((x[:, place : place + 1] == codes).to(x.dtype))
        return torch.cat(blocks, dim=1)


class _Pipeline(nn.Module):
    """`predict_proba` in torch."""

    mean: Tensor
    scale: Tensor

    def __init__(self, state: ClassifierState, head: Head) -> None:
        super().__init__()
        self.network = copy.deepcopy(state.module).cpu()
        self.head = head
        self.register_buffer("mean", _OPERATIONS.constant(state.mean))
        self.register_buffer("scale", _OPERATIONS.constant(state.scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.network(((x - self.mean) / self.scale).float()).double())


def _exported(pipeline: nn.Module, n_features: int) -> Any:
    try:
        import onnx  # noqa: F401 # torch needs it, and its own error would come later and be less clear
        import onnxscript  # noqa: F401 # the same
    except ImportError as error:
        raise ConfigError(
            f"Writing ONNX needs onnx and onnxscript; {error}. Run: pip install 'selfcal[export]'"
        ) from None
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                pipeline,
                (torch.zeros(2, n_features, dtype=torch.float64),),
                input_names=["X"],
                output_names=["probabilities"],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                dynamo=True,
                verbose=False,
            )
    finally:
        noisy.setLevel(level)


def _head(calibrator: Any) -> Head:
    if calibrator is None or calibrator.is_identity_:
        return _OPERATIONS.softmax
    # the type itself: a class that derives from one of them may have changed the map and not the formula
    if type(calibrator) not in _formulas():
        known = ", ".join(kind.__name__ for kind in _formulas())
        raise ConfigError(
            f"The calibrator must be one of {known} to be written as ONNX; got {type(calibrator).__name__}. Train "
            "with a method that has one of them or none, such as temperature or bo4sc."
        )
    return cast(Formula, calibrator).formula(_OPERATIONS)


def _formulas() -> list[type]:
    """The calibrators that are a formula."""
    kinds: list[type] = [getattr(calibrators, name) for name in calibrators.__all__]
    return [kind for kind in kinds if issubclass(kind, Formula)]


class _TorchOperations:
    """The operations of formulas in torch, of parts that onnxruntime has for float64."""

    def constant(self, values: Float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    def softmax(self, z: Tensor) -> Tensor:
        return torch.softmax(z, dim=1)

    def log_softmax(self, z: Tensor) -> Tensor:
        return torch.log_softmax(z, dim=1)

    def sigmoid(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def softplus(self, x: Tensor) -> Tensor:
        return torch.relu(x) + torch.log(1 + torch.exp(-torch.abs(x)))

    def log_odds(self, z: Tensor) -> Tensor:
        if z.shape[1] == 2:
            return z[:, 1:] - z[:, :1]
        hidden = torch.diag(torch.full((z.shape[1],), -1e30, dtype=z.dtype))
        return z - torch.logsumexp(z[:, None, :] + hidden, dim=2)

    def exp(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def clip(self, x: Tensor, low: float, high: float) -> Tensor:
        return torch.clamp(x, low, high)

    def top_two_gap(self, z: Tensor) -> Tensor:
        first, second = torch.topk(z, 2, dim=1).values.split(1, dim=1)
        return first - second

    def one_vs_rest(self, values: Tensor) -> Tensor:
        if values.shape[1] == 1:
            return torch.cat([1 - values, values], dim=1)
        return values / values.sum(dim=1, keepdim=True)


_OPERATIONS = _TorchOperations()
