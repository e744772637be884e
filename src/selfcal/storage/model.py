"""A fitted classifier as a folder of plain numbers and plain JSON: no pickle, nothing that could run code.

| file | holds |
|---|---|
| `model.safetensors` | weights and buffers of the network, the scaling of columns, arrays of the calibrator |
| `model.json` | everything else, the SHA-256 of each other file, and at its end the SHA-256 of all before it |
| `preprocessor.skops` | the encoding of a data frame, if the model was fitted on one |
| `report.html`, `report.json`, `model_card.md` | what was given to `save` as extras |

What only training needs is not stored: the rows' learned weights, the gamma-Net, the history.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

import selfcal
from selfcal import recipes
from selfcal._support.checks import shorten
from selfcal._support.json_values import as_json
from selfcal.calibrators._base import LogitCalibrator
from selfcal.ensembles import Ensemble
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.spec import has_own, maker_of, spec_of, summary_of
from selfcal.storage import skops_archive
from selfcal.storage.files import (
    FORMAT,
    FORMAT_VERSION,
    PREPROCESSOR,
    TENSORS,
    AnyPath,
    Tensors,
    field,
    opened,
    parse_tensors,
    read_extra,
    write,
)
from selfcal.storage.novelty import novelty_parts, restored_novelty
from selfcal.storage.parts import (
    Network,
    Values,
    calibrator_parts,
    classes_of,
    labels,
    restored_calibrator,
    restored_module,
    try_out,
    weights_of,
)
from selfcal.storage.state import ClassifierState
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.training.interfaces import Calibrator
from selfcal.training.recipe import Recipe

__all__ = ["FORMAT_VERSION", "Storable", "describe", "load_calibrator", "read_extra", "save_calibrator"]

_TRIED: dict[str, tuple[type, ...]] = {
    "network": (str,),
    "recipe": (str,),
    "weight": (float,),
    "out_of_fold_log_loss": (float, type(None)),
    "temperature": (float, type(None)),
    "networks": (int,),
    "planned": (int,),
    "out_of_time": (bool,),
}
"""Stored fields of every candidate; its training time is not stored, so that equal models have equal bytes."""

_OF_ONE_RUN = ("verbose", "checkpoint_dir", "n_jobs")
"""Settings of one fit on one machine, which are not stored."""


class Storable(ABC):
    """Adds `save` and `load` to a classifier that exposes its state."""

    @abstractmethod
    def _state(self) -> ClassifierState:
        """The state of the fitted classifier."""

    @classmethod
    @abstractmethod
    def _from_state(cls, state: ClassifierState) -> Self:
        """The fitted classifier with this state."""

    def save(
        self,
        path: AnyPath,
        *,
        metrics: Mapping[str, Any] | None = None,
        extras: Mapping[str, bytes] | None = None,
        own_network: bool = False,
    ) -> Path:
        """Write the fitted classifier into a folder, which appears whole or not at all.

        What only training needs is left out: learned weights of rows, the history, a `RandomState`, and where and how
        loudly the fit ran (`checkpoint_dir`, `verbose`).

        Args:
            path: The folder: new, empty, or with a model, which stays until the new one is whole.
            metrics: Numbers to keep with it; NaN becomes null.
            extras: Further files by name: ``preprocessor.skops``, ``report.html``, ``report.json`` or
                ``model_card.md``.
            own_network: Store a network that is not from `selfcal.models`, by its weights alone.

        Returns:
            The folder.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> from selfcal import SelfCalibratedClassifier
            >>> from selfcal.datasets import Blobs
            >>> X, y = Blobs(std=1.7).sample(100, seed=0)
            >>> clf = SelfCalibratedClassifier("temperature", max_epochs=5, random_state=0).fit(X, y)
            >>> with TemporaryDirectory() as folder:
            ...     again = SelfCalibratedClassifier.load(clf.save(f"{folder}/model"))
            >>> bool((again.predict_proba(X) == clf.predict_proba(X)).all())
            True
        """
        check_is_fitted(self)
        state = self._state()
        description, tensors = _taken_apart(type(self).__name__, state, own_network)
        description["metrics"] = None if metrics is None else as_json(metrics)
        files = dict(extras or {})
        if state.preprocessor is not None and PREPROCESSOR not in files:
            files[PREPROCESSOR] = skops_archive.dump({"preprocessor": state.preprocessor.state()})
        return write(path, description, tensors, files)

    @classmethod
    def load(cls, path: AnyPath, *, network: Network | None = None) -> Self:
        """Load a classifier that `save` wrote; its predictions are bit-identical to those before.

        Args:
            path: The folder.
            network: The function that makes the network, if it was saved with ``own_network=True``.
        """
        description, stored = opened(path, cls.__name__)
        spec = field(description, "network", dict, type(None))
        with _distrust(path):
            own = spec is None or has_own(spec)
        if own and network is None:
            raise ModelFormatError(
                f"{path} has a network that is not from selfcal.models, whose code is not stored. Pass the "
                "function that makes it: load(path, network=...)."
            )
        if network is not None and not own:
            raise ConfigError(f"network must be left out: {path} describes its own network.")
        tensors = parse_tensors(stored[TENSORS], path)
        preprocessor = _preprocessor(stored.get(PREPROCESSOR), path)
        with _distrust(path, but=(ConfigError,) if network else ()):
            return cls._from_state(_put_together(description, tensors, network, preprocessor))


def save_calibrator(
    calibrator: Calibrator, path: AnyPath, *, classes: ArrayLike, metrics: Mapping[str, Any] | None = None
) -> Path:
    """Write a fitted calibrator without the model that computes the logits, and the label of each column.

    Args:
        calibrator: Any of `selfcal.calibrators`.
        path: The folder, as for `Storable.save`.
        classes: The label of each column of the logits.
        metrics: Numbers to keep with it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from selfcal.calibrators import TemperatureScaling
        >>> fitted = TemperatureScaling().fit([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0]], [0, 1, 1])
        >>> with TemporaryDirectory() as folder:
        ...     again, classes = load_calibrator(save_calibrator(fitted, f"{folder}/model", classes=["no", "yes"]))
        >>> again.temperature_ == fitted.temperature_, classes.tolist()
        (True, ['no', 'yes'])
    """
    stored, arrays = calibrator_parts(calibrator)
    description = _header("Calibrator") | {"classes": labels(np.asarray(classes)), "calibrator": stored}
    return write(path, description | {"metrics": metrics and as_json(metrics)}, arrays, {})


def load_calibrator(path: AnyPath) -> tuple[LogitCalibrator, NDArray[Any]]:
    """The calibrator that `save_calibrator` wrote, and the labels of the columns."""
    description, stored = opened(path, "Calibrator")
    tensors = parse_tensors(stored[TENSORS], path)
    with _distrust(path):
        classes = classes_of(field(description, "classes", dict))
        arrays = _by_part(tensors)["calibrator"]
        calibrator = restored_calibrator(field(description, "calibrator", dict), arrays, len(classes))
    return calibrator, classes


def describe(path: AnyPath) -> Values:
    """The description of a stored model: the content of `model.json`, if no file of the folder was changed.

    The settings, classes, features, metrics and so on are those that its writer put there: nothing is loaded.
    """
    return opened(path)[0]


def _header(kind: str) -> Values:
    version = {"format_version": FORMAT_VERSION, "selfcal_version": selfcal.__version__}
    return {"format": FORMAT, **version, "kind": kind}


@contextmanager
def _distrust(path: AnyPath, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """A context in which any error, as from a damaged or hostile description, becomes a `ModelFormatError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except but:
        raise
    except Exception as error:
        raise ModelFormatError(f"{path} holds no usable model: {shorten(error, 500)}") from error


def _taken_apart(kind: str, state: ClassifierState, own_network: bool) -> tuple[Values, Tensors]:
    spec = spec_of(state.module)
    if has_own(spec) and not own_network:
        raise ConfigError(
            "The network must be one that selfcal.models made, since code is not stored with a model. Save it with "
            "own_network=True, which stores its weights alone, and give the function that makes it to "
            "load(path, network=...)."
        )
    calibrator, arrays = calibrator_parts(state.calibrator)
    scaling = {"scaling.mean": state.mean, "scaling.scale": state.scale}
    novelty, of_novelty = novelty_parts(state.novelty)
    names, recipe = state.feature_names, state.recipe
    description = _header(kind) | {
        "settings": _settings(state.settings),
        "recipe": recipe and {"name": recipe.name, "repr": repr(recipe)},
        "classes": labels(state.classes),
        "features": {"count": state.n_features, "names": None if names is None else [*map(str, names)]},
        "network": {**spec, **_chosen(state.network)},
        "summary": summary_of(state.module),
        "calibrator": calibrator,
        "training": {
            "steps": state.n_steps,
            "kept_step": state.best_step,
            "batch_reduced": state.n_reductions,
        },
        "selection": [{name: as_json(record[name]) for name in _TRIED} for record in state.selection] or None,
        "data": {"rows": state.n_rows, "fingerprint": state.fingerprint},
        "novelty": novelty,
    }
    return description, weights_of(state.module) | scaling | arrays | of_novelty


def _preprocessor(archive: bytes | None, path: AnyPath) -> Preprocessor | None:
    if archive is None:
        return None
    try:
        return Preprocessor.from_state(skops_archive.load(archive)["preprocessor"], budget=sys.maxsize)
    except Exception as error:  # a damaged or hostile file may raise anything
        raise ModelFormatError(
            f"{path}/{PREPROCESSOR} holds nothing that can be used: {shorten(error, 300)}"
        ) from error


def _put_together(
    description: Values, tensors: Tensors, network: Network | None, preprocessor: Preprocessor | None
) -> ClassifierState:
    settings = field(description, "settings", dict)
    if isinstance(settings.get("class_weight"), list):
        settings["class_weight"] = dict(settings["class_weight"])
    hidden = field(settings, "hidden", list, type(None))
    settings["hidden"] = None if hidden is None else tuple(hidden)
    classes = classes_of(field(description, "classes", dict))
    n_features, names = _features(field(description, "features", dict))
    if preprocessor is not None and len(preprocessor.feature_names) != n_features:
        raise ModelFormatError("The preprocessor is not that of the network.")
    sizes, parts = (n_features, len(classes)), _by_part(tensors)
    mean, scale = (_column(parts["scaling"], name, n_features) for name in ("mean", "scale"))
    # from here on there are as many features as numbers in the file
    module = restored_module(description["network"], sizes, parts["network"], network)
    try_out(module, sizes)
    stored = field(description, "calibrator", dict, type(None))
    calibrator = None if stored is None else restored_calibrator(stored, parts["calibrator"], len(classes))
    novelty = description.get("novelty")  # not in folders of earlier versions
    tried = [] if description.get("selection") is None else field(description, "selection", list)
    training, data = field(description, "training", dict), field(description, "data", dict)
    return ClassifierState(
        settings=settings,
        network=network or _restored_choice(description["network"], module),
        recipe=_recipe(field(settings, "method", str), field(description, "recipe", dict, type(None))),
        classes=classes,
        n_features=n_features,
        feature_names=names,
        preprocessor=preprocessor,
        mean=mean,
        scale=scale,
        module=module,
        calibrator=calibrator,
        n_steps=field(training, "steps", int),
        best_step=field(training, "kept_step", int),
        n_reductions=field({"batch_reduced": 0, **training}, "batch_reduced", int),
        n_rows=field(data, "rows", int),
        fingerprint=field(data, "fingerprint", str, type(None)),
        selection=_selection(tried),
        novelty=None
        if novelty is None
        else restored_novelty(field(description, "novelty", dict), parts["novelty"], n_features),
    )


def _selection(stored: list[Any]) -> list[Values]:
    for record in stored:
        if not isinstance(record, dict):
            raise ModelFormatError("The candidates must be described by names and numbers.")
        record.setdefault("planned", record.get("networks"))  # not in folders of 0.1.0
        record.setdefault("out_of_time", False)
        for name, kinds in _TRIED.items():
            field(record, name, *kinds)
    return stored


def _chosen(network: Network | str | None) -> Values:
    """The user's choice of network: the default, the name of a kind, or a function."""
    return {"default": network is None, "kind": network if isinstance(network, str) else None}


def _restored_choice(stored: Values, module: nn.Module) -> Network | str | None:
    """The reverse of `_chosen`."""
    kind: str | None = stored.get("kind")
    if kind is None and not field(stored, "default", bool):
        return maker_of(module)
    return kind


def _settings(given: Values) -> Values:
    """Arguments of the classifier as plain values; a recipe by its name, if that identifies it."""
    given = given | dict.fromkeys(_OF_ONE_RUN)
    recipe = given["method"]
    if isinstance(recipe, (Recipe, Ensemble)):
        known = recipe.name in recipes.names() and repr(recipes.named(recipe.name)) == repr(recipe)
        given["method"] = recipe.name if known else repr(recipe)
    if isinstance(given["random_state"], np.random.RandomState):
        given["random_state"] = None
    if isinstance(given["class_weight"], Mapping):
        # as pairs, since a name in JSON is text, and a label may be a number
        given["class_weight"] = [*given["class_weight"].items()]
    return {name: as_json(value) for name, value in given.items()}


def _recipe(method: str, stored: Values | None) -> Recipe | Ensemble | None:
    if method not in recipes.names():
        return None
    recipe = recipes.named(method)
    return recipe if stored is not None and field(stored, "repr", str) == repr(recipe) else None


def _features(stored: Values) -> tuple[int, NDArray[Any] | None]:
    count, names = field(stored, "count", int), field(stored, "names", list, type(None))
    if names is None:
        return count, None
    if any(type(name) is not str for name in names) or len(names) != count:
        raise ModelFormatError(f"There must be {count} names of features, all of them strings.")
    return count, np.array(names, dtype=object)


def _by_part(tensors: Tensors) -> dict[str, Tensors]:
    parts: dict[str, Tensors] = {"network": {}, "scaling": {}, "calibrator": {}, "novelty": {}}
    for name, values in tensors.items():
        part, _, below = name.partition(".")
        if part not in parts:
            raise ModelFormatError(f"No model has a tensor named {shorten(name)!r}.")
        parts[part][below] = values
    return parts


def _column(scaling: Tensors, name: str, n_features: int) -> NDArray[Any]:
    values = scaling.get(name)
    if values is None or values.dtype != np.float64 or values.shape != (n_features,):
        raise ModelFormatError(f"scaling.{name} must have one float64 number for each feature.")
    if not np.isfinite(values).all() or (name == "scale" and not (values > 0).all()):
        raise ModelFormatError(f"scaling.{name} must have finite numbers (and scales above zero).")
    return values.copy()
