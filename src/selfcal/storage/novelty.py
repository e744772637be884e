"""A novelty score with the scores of held-out rows as plain values, and back; nothing here needs torch."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from selfcal import uncertainty
from selfcal._support import checks
from selfcal._support.checks import Float, shorten
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.storage.files import Tensors, field
from selfcal.uncertainty import UncertaintyScore

HELD_OUT = "held_out"
SCORE = "score."
"""What the names of the arrays of the score begin with."""


@dataclass(frozen=True)
class NoveltyState:
    """What it takes to tell rows unlike the training rows.

    Attributes:
        score: A fitted score of the features.
        held_out: Its values in rows that it was not fitted on, in ascending order.
        false_alarms: The fraction of rows like those that may be flagged.
    """

    score: UncertaintyScore
    held_out: Float
    false_alarms: float


def novelty_parts(state: NoveltyState | None) -> tuple[dict[str, Any] | None, Tensors]:
    """Name and plain values, and apart from them the arrays."""
    if state is None:
        return None, {}
    name = type(state.score).__name__
    if _kinds().get(name) is not type(state.score):
        raise ConfigError(
            f"A novelty score must be one of {', '.join(_kinds())} to be stored; got {state.score!r}."
        )
    fitted = state.score.get_state()
    arrays = {f"{SCORE}{key}": v for key, v in fitted.items() if isinstance(v, np.ndarray)}
    values = {key: v for key, v in fitted.items() if not isinstance(v, np.ndarray)}
    stored = {"name": name, "state": values, "false_alarms": state.false_alarms}
    return stored, {f"novelty.{key}": v for key, v in (arrays | {HELD_OUT: state.held_out}).items()}


def restored_novelty(stored: dict[str, Any], arrays: Tensors, n_features: int) -> NoveltyState:
    """The reverse of `novelty_parts`; a score that fails on an ordinary row is better refused now than later."""
    name = field(stored, "name", str)
    if name not in _kinds():
        raise ModelFormatError(
            f"A novelty score must be one of {', '.join(_kinds())}; got {shorten(name)!r}."
        )
    held_out = arrays.get(HELD_OUT)
    if held_out is None or held_out.ndim != 1 or not len(held_out) or np.isnan(held_out).any():
        raise ModelFormatError(f"novelty.{HELD_OUT} must have one score for each held-out row.")
    state = field(stored, "state", dict) | {
        key.removeprefix(SCORE): values for key, values in arrays.items() if key.startswith(SCORE)
    }
    score = _kinds()[name].from_state(state)
    found = score.score(np.zeros((1, n_features)))
    if found.shape != (1,) or not np.isfinite(found).all():
        raise ModelFormatError(f"The {name} does not return a score for each row.")
    rate = checks.in_range("false_alarms", field(stored, "false_alarms", float), 1e-6, 1 - 1e-6)
    return NoveltyState(score, np.sort(held_out.astype(np.float64)), rate)


def _kinds() -> dict[str, type[uncertainty.FeatureScore]]:
    """The scores of features, by name."""
    every = {name: getattr(uncertainty, name) for name in uncertainty.__all__}
    return {
        name: kind
        for name, kind in every.items()
        if issubclass(kind, uncertainty.FeatureScore) and not inspect.isabstract(kind)
    }
