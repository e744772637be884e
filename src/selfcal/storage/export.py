"""A trained classifier as an ONNX graph: raw numbers in, calibrated probabilities out."""

from __future__ import annotations

import copy
import json
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from selfcal._support.checks import Float
from selfcal._support.files import write_atomically
from selfcal.calibrators import (
    AttendedTemperatureScaling,
    BetaCalibration,
    DirichletCalibration,
    EnsembleTemperatureScaling,
    MatrixScaling,
    PlattScaling,
    TemperatureScaling,
    VectorScaling,
)
from selfcal.errors import ConfigError
from selfcal.storage.parts import labels
from selfcal.tabular.preprocessing import Preprocessor

if TYPE_CHECKING:
    from selfcal.estimators.classifier import SelfCalibratedClassifier

Head = Callable[[Tensor], Tensor]
"""From logits to probabilities."""


def to_onnx(
    model: SelfCalibratedClassifier, path: str | os.PathLike[str], *, preprocessor: Preprocessor | None = None
) -> Path:
    """Write a fitted classifier as an ONNX file: scaling of columns, network and calibrator in one graph.

    Its input ``X`` is a table of float64 numbers, its output ``probabilities`` has one column for each class;
    their labels are in the metadata of the file, as JSON, under ``classes``. With a preprocessor the graph starts
    where cells have become numbers: missing ones are NaN, and a category is its place in the list that stands, with
    the names of all columns, under ``inputs`` in the metadata; -1 is a category that is not there.

    Args:
        model: A fitted classifier without a calibrator, or with one that is a formula: temperature, vector, matrix
            scaling and the like. Those made of steps or of a field are told apart with an error.
        path: The file.
        preprocessor: The fitted preprocessor before the classifier, if it was trained on a table.

    Returns:
        The file.

    Example:
        ``to_onnx(SelfCalibratedClassifier("temperature").fit(X, y), "model.onnx")``, and anywhere else
        ``onnxruntime.InferenceSession("model.onnx").run(None, {"X": X})``.
    """
    check_is_fitted(model)
    pipeline: nn.Module = _Pipeline(model, _head(model.calibrator_))
    metadata: dict[str, object] = {"classes": labels(model.classes_)["values"]}
    n_inputs = model.n_features_in_
    if preprocessor is not None:
        pipeline = nn.Sequential(_Encoder(preprocessor), pipeline)
        metadata["inputs"] = preprocessor.inputs
        n_inputs = len(preprocessor.inputs)
    proto = _exported(pipeline.eval(), n_inputs).model_proto
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=json.dumps(value))
    return write_atomically(path, proto.SerializeToString())


class _Encoder(nn.Module):
    """What a `Preprocessor` does once cells are numbers and codes of categories."""

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
            self.register_buffer("largest", _constant(scaling["scale"].scale_))
            self.register_buffer("mean", _constant(scaling["standardize"].mean_))
            self.register_buffer("scale", _constant(scaling["standardize"].scale_))
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
    """What `predict_proba` does, in torch."""

    mean: Tensor
    scale: Tensor

    def __init__(self, model: SelfCalibratedClassifier, head: Head) -> None:
        super().__init__()
        self.network = copy.deepcopy(model.module_).cpu()
        self.head = head
        self.register_buffer("mean", _constant(model._scaling.mean))
        self.register_buffer("scale", _constant(model._scaling.scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.network(((x - self.mean) / self.scale).float()).double())


def _exported(pipeline: nn.Module, n_features: int) -> Any:
    try:
        import onnx  # noqa: F401 # torch needs it, and would say so later and less plainly
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
        return _softmax
    make = _HEADS.get(type(calibrator))
    if make is None:
        known = ", ".join(kind.__name__ for kind in _HEADS)
        raise ConfigError(
            f"The calibrator must be one of {known} to be written as ONNX; got {type(calibrator).__name__}. Train "
            "with a method that has one of them or none, such as temperature or bo4sc."
        )
    return make(calibrator)


def _softmax(z: Tensor) -> Tensor:
    return torch.softmax(z, dim=1)


def _temperature(calibrator: TemperatureScaling | AttendedTemperatureScaling) -> Head:
    return lambda z: _softmax(z / calibrator.temperature_)


def _mixture(calibrator: EnsembleTemperatureScaling) -> Head:
    scaled, own, even = calibrator.weights_.tolist()
    temperature = calibrator.scaling_.temperature_
    return lambda z: scaled * _softmax(z / temperature) + own * _softmax(z) + even / calibrator.n_classes_


def _vector(calibrator: VectorScaling) -> Head:
    factor, bias = _constant(calibrator.parameters_)
    return lambda z: _softmax(z * factor + bias)


def _matrix(calibrator: MatrixScaling) -> Head:
    matrix, bias = _constant(calibrator.parameters_[:-1]), _constant(calibrator.parameters_[-1])
    return lambda z: _softmax(z @ matrix + bias)


def _dirichlet(calibrator: DirichletCalibration) -> Head:
    matrix, bias = _constant(calibrator.parameters_[:-1]), _constant(calibrator.parameters_[-1])
    return lambda z: _softmax(torch.log_softmax(z, dim=1) @ matrix + bias)


def _platt(calibrator: PlattScaling) -> Head:
    slope, intercept = _columns(calibrator, "slope"), _columns(calibrator, "intercept")
    return lambda z: _one_against_rest(torch.sigmoid(slope * _log_odds(z) + intercept))


def _beta(calibrator: BetaCalibration) -> Head:
    a, b, c = (_columns(calibrator, name) for name in "abc")

    def head(z: Tensor) -> Tensor:
        odds = _log_odds(z)
        log_p, against = -_softplus(-odds), _softplus(odds)
        return _one_against_rest(torch.sigmoid(a * log_p + b * against + c))

    return head


def _softplus(x: Tensor) -> Tensor:
    """``log(1 + exp(x))`` of parts that onnxruntime has for float64."""
    return torch.relu(x) + torch.log(1 + torch.exp(-torch.abs(x)))


def _log_odds(z: Tensor) -> Tensor:
    """Each logit less the logsumexp of the others; of two classes, those of the second alone."""
    if z.shape[1] == 2:
        return z[:, 1:] - z[:, :1]
    hidden = torch.diag(torch.full((z.shape[1],), -1e30, dtype=z.dtype))
    return z - torch.logsumexp(z[:, None, :] + hidden, dim=2)


def _one_against_rest(values: Tensor) -> Tensor:
    if values.shape[1] == 1:
        return torch.cat([1 - values, values], dim=1)
    return values / values.sum(dim=1, keepdim=True)


def _columns(calibrator: PlattScaling | BetaCalibration, name: str) -> Tensor:
    return torch.tensor([getattr(curve, name) for curve in calibrator.curves_], dtype=torch.float64)


def _constant(values: Float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


_HEADS: dict[type, Callable[[Any], Head]] = {
    TemperatureScaling: _temperature,
    AttendedTemperatureScaling: _temperature,
    EnsembleTemperatureScaling: _mixture,
    VectorScaling: _vector,
    MatrixScaling: _matrix,
    DirichletCalibration: _dirichlet,
    PlattScaling: _platt,
    BetaCalibration: _beta,
}
