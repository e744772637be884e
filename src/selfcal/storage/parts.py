"""The parts of a model as plain values, and back; what was read is believed only as far as it fits together."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from selfcal import calibrators, models
from selfcal._support.checks import plain, shorten
from selfcal._support.random_streams import seeded
from selfcal.calibrators._base import LogitCalibrator
from selfcal.ensembles.modules import EnsembleModule, NoiseCorrected
from selfcal.errors import ConfigError, ModelFormatError, TrainingError
from selfcal.storage.files import Tensors, field
from selfcal.training.interfaces import Calibrator
from selfcal.training.problem import forward_in_blocks

NETWORKS = ("mlp", "tabular", "resnet18", "resnet50", "vgg16")
NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
           "float32", "float64")  # fmt: skip
LONGEST_WORD = 40
MOST_LETTERS = 1 << 26
"""Of an array of class names, in which each takes as much room as the longest."""

Network = Callable[[int, int], nn.Module]
Sizes = tuple[int, int]
"""Columns and classes."""
Values = dict[str, Any]


@dataclass(frozen=True)
class NamedNetwork:
    """A network of `selfcal.models` by name and arguments, as a function ``(n_features, n_classes) -> module``.

    Example:
        >>> NamedNetwork("mlp", {"n_features": 4, "n_classes": 3, "hidden": []})(2, 5)
        Sequential(
          (0): Linear(in_features=2, out_features=5, bias=True)
        )
    """

    name: str
    arguments: Values

    def __call__(self, n_features: int, n_classes: int) -> nn.Module:
        """The network, untrained, for so many columns and classes."""
        sizes = {"n_features": n_features, "n_classes": n_classes}
        arguments = {name: sizes.get(name, value) for name, value in self.arguments.items()}
        module: nn.Module = getattr(models, self.name)(**arguments)
        return module


def as_json(value: Any) -> Any:
    """The value as JSON has it; what is not a finite number becomes null."""
    value = value.tolist() if isinstance(value, np.ndarray) else plain(value)
    if isinstance(value, Mapping):
        return {str(name): as_json(below) for name, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(below) for below in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(f"Only numbers, words, lists and dictionaries can be stored; got {value!r}.")


def labels(classes: NDArray[Any]) -> Values:
    """Class labels with their exact type; JSON itself tells strings, whole numbers, others and booleans apart."""
    kind = {"U": "str", "O": "object"}.get(classes.dtype.kind, classes.dtype.name)
    values = [plain(value) for value in classes.tolist()]
    if kind not in ("str", "object", *NUMBERS) or not all(isinstance(v, (str, int, float)) for v in values):
        raise ConfigError(
            f"Classes must be strings, numbers or booleans to be stored; got {values[0]!r} ({classes.dtype}). "
            "Convert the labels before fit."
        )
    if kind == "str" and classes.nbytes > 4 * MOST_LETTERS:
        raise ConfigError(f"The names of the classes are too long: more than {MOST_LETTERS:,} letters.")
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
    if kind == "str" and len(values) * max(map(len, values)) > MOST_LETTERS:
        raise ModelFormatError(f"The names of the classes are too long: more than {MOST_LETTERS:,} letters.")
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
                f"The network must have no NaN to be saved; {name!r} has. Train it more slowly."
            )
    return tensors


def network_parts(module: nn.Module) -> Values | None:
    """How to make the network again: name and arguments, or those of each member; None if selfcal did not make it."""
    if isinstance(module, NoiseCorrected):
        inside = network_parts(module.network)
        return None if inside is None else {"denoised": inside}
    if isinstance(module, EnsembleModule):
        members = [network_parts(member) for member in module.members]
        return None if None in members else {"members": members}
    made = models.origin(module)
    return None if made is None else dict(as_json(made._asdict()))


def named_network(stored: Values, sizes: Sizes, weights: Tensors) -> nn.Module:
    """The reverse of `network_parts`.

    It is built without memory first: what a file says must fit the weights it has before anything is made.
    """
    with torch.device("meta"):
        module = _described(stored, sizes, weights)
    _check_fit(module, weights)
    return _filled(module, weights, assign=True)


def _described(stored: Values, sizes: Sizes, weights: Tensors) -> nn.Module:
    if "denoised" in stored:
        return NoiseCorrected(_committee(field(stored, "denoised", dict), sizes, weights), n_classes=sizes[1])
    return _committee(stored, sizes, weights)


def _committee(stored: Values, sizes: Sizes, weights: Tensors) -> nn.Module:
    if "members" not in stored:
        return _network(stored, sizes, weights)(*sizes)
    members = field(stored, "members", list)
    _check_number(len(members), weights)
    return EnsembleModule([_network(member, sizes, weights)(*sizes) for member in members])


def maker_of(stored: Values, sizes: Sizes, weights: Tensors) -> Network:
    """The function that makes such a network, or any member of a committee: one function has made them all."""
    stored = stored.get("denoised", stored)
    return _network(stored["members"][0] if "members" in stored else stored, sizes, weights)


def _network(stored: Any, sizes: Sizes, weights: Tensors) -> NamedNetwork:
    if not isinstance(stored, dict):
        raise ModelFormatError("A network must be described by its name and arguments.")
    name, arguments = field(stored, "name", str), field(stored, "arguments", dict)
    if name not in NETWORKS:
        raise ModelFormatError(f"A network must be one of {', '.join(NETWORKS)}; got {shorten(name)!r}.")
    known = inspect.signature(getattr(models, name)).parameters
    longest: dict[type, int] = {str: LONGEST_WORD, list: max(len(weights), *sizes)}
    for argument, value in arguments.items():
        short = type(value) in longest and len(value) <= longest[type(value)]
        if argument not in known or not (short or type(value) in (int, float, type(None))):
            raise ModelFormatError(f"{name} takes no such argument: {shorten(argument)!r}.")
    return NamedNetwork(name, arguments)


def own_network(network: Network, sizes: Sizes, weights: Tensors) -> nn.Module:
    """The network that a function of the user makes, with the stored weights.

    The names of the weights tell which wrappers it had: a `EnsembleModule` of several networks, and `NoiseCorrected`.
    """
    try:
        with seeded(0):  # what it draws is replaced; the global stream stays as it is
            module = network(*sizes)
    except Exception as error:
        raise ConfigError(f"network must take {sizes[0]} features and {sizes[1]} classes: {error}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"network must be a function (n_features, n_classes) -> nn.Module; it returned {module!r}."
        )
    denoised = {name for name in weights if not name.startswith("network.")} == {"matrix", "power"}
    prefix = "network." if denoised else ""
    if {f"{prefix}log_weights", f"{prefix}temperatures"} <= weights.keys():
        n_members = weights[f"{prefix}log_weights"].size
        _check_number(n_members, weights)
        module = EnsembleModule([copy.deepcopy(module) for _ in range(n_members)])
    if denoised:
        module = NoiseCorrected(module, n_classes=sizes[1])
    try:
        _check_fit(module, weights)
    except ModelFormatError as error:
        raise ConfigError(f"network must make the network that was saved. {error}") from None
    return _filled(module, weights)


def try_out(module: nn.Module, sizes: Sizes) -> None:
    """One forward pass: a network that takes no rows of a table is better refused now than later."""
    logits = forward_in_blocks(module, torch.zeros(1, sizes[0]))
    if logits.shape != (1, sizes[1]):
        raise ModelFormatError(
            f"The network must give {sizes[1]} logits a row; it gives {tuple(logits.shape)}."
        )


def _check_number(n_members: int, weights: Tensors) -> None:
    if not 0 < n_members <= len(weights):
        raise ModelFormatError(f"A committee of {n_members} networks does not fit the stored weights.")


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
        raise ModelFormatError(f"The network must have no NaN; {shorten(damaged[0])!r} has.")
    values = {name: torch.tensor(array) for name, array in weights.items()}
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
        raise ModelFormatError(f"The {name} gives no probabilities.")
    return calibrator
