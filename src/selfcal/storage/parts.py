"""The parts of a model as plain values, and back; what was read is believed only as far as it fits together."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from selfcal import calibrators
from selfcal._support.checks import plain, shorten
from selfcal._support.random_streams import seeded
from selfcal.calibrators._base import LogitCalibrator
from selfcal.errors import ConfigError, ModelFormatError, TrainingError
from selfcal.models.spec import OWN, Builder, Spec
from selfcal.storage.files import Tensors, field
from selfcal.training.interfaces import Calibrator
from selfcal.training.problem import forward_in_blocks

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
           "float32", "float64")  # fmt: skip
MAX_CLASS_LETTERS = 1 << 26
"""Of an array of class names, in which each takes as much room as the longest."""

Network = Callable[[int, int], nn.Module]
Sizes = tuple[int, int]
"""Columns and classes."""
Values = dict[str, Any]


def labels(classes: NDArray[Any]) -> Values:
    """Class labels with their exact type; JSON distinguishes strings, integers, other numbers and booleans."""
    kind = {"U": "str", "O": "object"}.get(classes.dtype.kind, classes.dtype.name)
    values = [plain(value) for value in classes.tolist()]
    if kind not in ("str", "object", *NUMBERS) or not all(isinstance(v, (str, int, float)) for v in values):
        raise ConfigError(
            f"Classes must be strings, numbers or booleans to be stored; got {values[0]!r} ({classes.dtype}). "
            "Convert the labels before fit."
        )
    if kind == "str" and classes.nbytes > 4 * MAX_CLASS_LETTERS:
        raise ConfigError(f"The names of the classes are too long: more than {MAX_CLASS_LETTERS:,} letters.")
    return {"dtype": kind, "values": values}


def classes_of(stored: Values) -> NDArray[Any]:
    """The reverse of `labels`."""
    kind, values = field(stored, "dtype", str), field(stored, "values", list)
    allowed = {"str": (str,), "object": (str, int, float, bool), "bool": (bool,)}.get(kind)
    if allowed is None:
        if kind not in NUMBERS:
            raise ModelFormatError(f"Classes of type {shorten(kind)!r} are unknown.")
        allowed = (float,) if kind.startswith("float") else (int,)
    if any(type(value) not in allowed for value in values) or not len({*values}) == len(values) >= 2:
        raise ModelFormatError(f"There must be two or more different classes of type {kind}.")
    if kind == "str" and len(values) * max(map(len, values)) > MAX_CLASS_LETTERS:
        raise ModelFormatError(
            f"The names of the classes are too long: more than {MAX_CLASS_LETTERS:,} letters."
        )
    return np.array(values, dtype=kind if kind != "str" else None)


def weights_of(module: nn.Module) -> Tensors:
    """Parameters and buffers by name."""
    tensors: Tensors = {}
    for name, value in module.state_dict().items():
        try:
            tensors[f"network.{name}"] = value.detach().cpu().numpy()
        except (AttributeError, TypeError) as error:
            raise ConfigError(f"{name!r} of the network cannot be stored as numbers: {error}.") from None
        if np.isnan(tensors[f"network.{name}"]).any():
            raise TrainingError(
                f"The network must not hold NaN to be saved; {name!r} does. Train it with a lower learning rate."
            )
    return tensors


def restored_module(
    stored: Values | None, sizes: Sizes, weights: Tensors, network: Network | None
) -> nn.Module:
    """The module that a stored spec describes, with the stored weights.

    It is first built on the meta device, without memory: the spec must fit the stored weights before anything is
    allocated. A network for a placeholder in the spec is the user's code, which may not work on the meta device.

    Args:
        stored: The spec; None in folders of own networks by selfcal 0.1.0.
        sizes: Features and classes.
        weights: By name.
        network: The user's function that makes the network.
    """
    made = None if network is None else _made(network, sizes)
    own = None if made is None else functools.partial(copy.deepcopy, made)
    builder = Builder(*sizes, own=own, max_networks=len(weights))
    with torch.device("meta"):
        module = builder(_guessed_spec(weights) if stored is None else stored)
    try:
        _check_fit(module, weights)
    except ModelFormatError as error:
        if made is None:
            raise
        raise ConfigError(f"network must make the network that was saved. {error}") from None
    return _filled(module, weights, assign=made is None)


def _made(network: Network, sizes: Sizes) -> nn.Module:
    """The network that the user's function returns."""
    try:
        with seeded(0):  # what it draws is replaced; the global stream stays as it is
            module = network(*sizes)
    except Exception as error:
        raise ConfigError(f"network must take {sizes[0]} features and {sizes[1]} classes: {error}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"network must be a function (n_features, n_classes) -> nn.Module; it returned {module!r}."
        )
    return module


def _guessed_spec(weights: Tensors) -> Spec:
    """The spec of an own network of selfcal 0.1.0, which stored none: names of weights show which wrappers it had."""
    corrected = {name for name in weights if not name.startswith("network.")} == {"matrix", "power"}
    prefix = "network." if corrected else ""
    spec: Spec = {OWN: ""}
    if {f"{prefix}log_weights", f"{prefix}temperatures"} <= weights.keys():
        spec = {"members": [spec] * weights[f"{prefix}log_weights"].size}
    return {"denoised": spec} if corrected else spec


def try_out(module: nn.Module, sizes: Sizes) -> None:
    """One forward pass: a network that does not accept rows of a table fails here, not later."""
    logits = forward_in_blocks(module, torch.zeros(1, sizes[0]))
    if logits.shape != (1, sizes[1]):
        raise ModelFormatError(
            f"The network must return {sizes[1]} logits per row; got the shape {tuple(logits.shape)} for one row."
        )


def _check_fit(module: nn.Module, weights: Tensors) -> None:
    expected = {name: (tuple(v.shape), str(v.dtype)) for name, v in module.state_dict().items()}
    stored = {name: (v.shape, f"torch.{v.dtype}") for name, v in weights.items()}
    if differing := sorted(
        name for name in expected.keys() | stored.keys() if expected.get(name) != stored.get(name)
    ):
        name = differing[0]
        raise ModelFormatError(
            f"The stored weights do not fit the network: {shorten(name)!r} must be {expected.get(name, 'absent')}; "
            f"got {stored.get(name, 'none')}."
        )


def _filled(module: nn.Module, weights: Tensors, *, assign: bool = False) -> nn.Module:
    if damaged := [name for name, values in weights.items() if np.isnan(values).any()]:
        raise ModelFormatError(f"The network must not hold NaN; {shorten(damaged[0])!r} does.")
    values = {name: torch.tensor(array) for name, array in weights.items()}
    if not assign:  # an own network keeps its tensors, on their device; wrappers around it have none yet
        for part in module.modules():
            if any(
                tensor.is_meta for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))
            ):
                part.to_empty(device="cpu", recurse=False)
    module.load_state_dict(values, assign=assign)
    return module


def calibrator_parts(calibrator: Calibrator | None) -> tuple[Values | None, Tensors]:
    """Name and plain values, and apart from them the arrays."""
    if calibrator is None:
        return None, {}
    name = type(calibrator).__name__
    if getattr(calibrators, name, None) is not type(calibrator):
        raise ConfigError(
            f"A calibrator must be one of {', '.join(calibrators.__all__)} to be stored; got {calibrator!r}."
        )
    assert isinstance(calibrator, LogitCalibrator)  # as all of them are
    state = calibrator.get_state()
    arrays = {f"calibrator.{key}": v for key, v in state.items() if isinstance(v, np.ndarray)}
    values = {key: v for key, v in state.items() if not isinstance(v, np.ndarray)}
    return {"name": name, "state": values}, arrays


def restored_calibrator(stored: Values, arrays: Tensors, n_classes: int) -> LogitCalibrator:
    """The reverse of `calibrator_parts`; one that fails on ordinary logits is better refused now than later."""
    name, state = field(stored, "name", str), field(stored, "state", dict)
    if name not in calibrators.__all__:
        raise ModelFormatError(
            f"A calibrator must be one of {', '.join(calibrators.__all__)}; got {shorten(name)!r}."
        )
    calibrator: LogitCalibrator = getattr(calibrators, name).from_state(state | arrays)
    steps = np.concatenate([np.linspace(-30, 30, 31), [-750.0, 750.0]])
    rows = steps[:, None] * np.linspace(1, -1, n_classes)
    probs, chosen = calibrator.predict_proba(rows), calibrator.predict(rows)
    calibrator.confidence(rows)
    if probs.shape != rows.shape or not np.allclose(probs.sum(axis=1), 1) or chosen.min() < 0:
        raise ModelFormatError(f"The {name} does not return probabilities.")
    return calibrator
