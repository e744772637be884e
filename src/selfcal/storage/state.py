"""The state of a fitted classifier, which `save` writes and `load` reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import nn

from selfcal._support.checks import Float
from selfcal.ensembles import Ensemble
from selfcal.storage.novelty import NoveltyState
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.training.interfaces import Calibrator
from selfcal.training.recipe import Recipe


@dataclass(frozen=True)
class ClassifierState:
    """The state that a fitted classifier needs to predict, and a summary of its training.

    Attributes:
        settings: The arguments of the classifier, but for the network.
        network: The argument that chooses the network: a kind, a function, or None.
        recipe: The recipe that trained it; None if only its text is known.
        classes: The label of each column of the logits.
        n_features: Columns of the network's input.
        feature_names: Their names, if it was fitted on numbers with names.
        preprocessor: The encoding of a data frame as that input, if it was fitted on one.
        mean: The mean that is subtracted from each column.
        scale: The scale that each column is then divided by.
        module: The network.
        calibrator: The map from its logits to probabilities; None is the softmax.
        n_steps: Steps taken in training.
        best_step: The step whose state was kept.
        n_reductions: Number of times the batch size was halved.
        n_rows: Rows given to `fit`.
        fingerprint: A SHA-256 of them.
        selection: The candidates, if several networks were trained.
        novelty: The score that tells rows unlike the training rows, if there is one.
    """

    settings: dict[str, Any]
    network: Callable[[int, int], nn.Module] | str | None
    recipe: Recipe | Ensemble | None
    classes: NDArray[Any]
    n_features: int
    feature_names: NDArray[Any] | None
    preprocessor: Preprocessor | None
    mean: Float
    scale: Float
    module: nn.Module
    calibrator: Calibrator | None
    n_steps: int
    best_step: int
    n_reductions: int
    n_rows: int
    fingerprint: str | None
    selection: Sequence[dict[str, Any]] = ()
    novelty: NoveltyState | None = None
