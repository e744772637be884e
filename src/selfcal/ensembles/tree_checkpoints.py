"""Checkpoints of trained trees, so that a resumed fit does not train them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import joblib
import numpy as np
import sklearn
import torch
from torch import Tensor

from selfcal._support.fingerprint import fingerprint
from selfcal._support.locks import locked
from selfcal.ensembles.ensemble import Candidate
from selfcal.ensembles.folds import Split
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows, TrainedMembers
from selfcal.models.spec import Builder, spec_of
from selfcal.training.checkpoint import Generations, described, identified
from selfcal.training.engine import TrainingResult
from selfcal.training.history import History


def trained_once(
    train: Callable[[], TrainedMembers],
    candidate: Candidate,
    members: Sequence[int],
    *,
    rows: Rows,
    splits: Sequence[Split],
    settings: MemberSettings,
    parameters: Mapping[str, object] | None = None,
) -> TrainedMembers:
    """Train trees and save them, or load those that an earlier process saved; without a folder, train them.

    The time that training took is that of the earlier process.

    Args:
        train: Trains the members; their modules must be `Trees`.
        candidate: The candidate, whose repr tells it from others.
        members: The numbers of the members.
        rows: All rows.
        splits: The splits of all members.
        settings: The seed, the number of classes and the folder.
        parameters: Those of a classifier, which its repr may abbreviate.

    Raises:
        CheckpointError: The saved trees are damaged, or those of other data or settings.
    """
    if settings.folder is None:
        return train()
    name = quote(f"{candidate.name}-{candidate.method}-{members[0]}", safe=" ")
    own = [part for member in members for part in splits[member]]
    with locked(settings.folder / name) as folder:
        identity = {
            "candidate": described(candidate),
            "parameters": joblib.hash(parameters),
            "members": list(members),
            "seed": settings.seed,
            "classes": settings.make.n_classes,
            "train data": fingerprint(rows.x.numpy(), rows.y, rows.weight, rows.groups, *own),
            "scikit-learn version": sklearn.__version__,
        }
        store = Generations(folder, identified(identity))
        state = store.newest()
        if state is not None:
            return _loaded(state, Builder(rows.x.shape[1], settings.make.n_classes))
        trained = train()
        store.save(_state(trained))
        return trained


def _state(trained: TrainedMembers) -> dict[str, Any]:
    """Tensors and plain values, by name."""
    result = trained.result
    return {
        "members": [{"spec": spec_of(tree), "tensors": tree.state_dict()} for tree in trained.members],
        "held_out_logits": torch.from_numpy(trained.held_out_logits),
        "history": {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in vars(result.history).items()
        },
        "result": {name: getattr(result, name) for name in ("n_steps", "best_step", "status", "seconds")},
    }


def _loaded(state: dict[str, Any], build: Builder) -> TrainedMembers:
    """The inverse of `_state`."""
    members = [build(member["spec"]) for member in state["members"]]
    for module, member in zip(members, state["members"], strict=True):
        module.load_state_dict(member["tensors"])
    history: dict[str, Any] = {
        name: value.numpy() if isinstance(value, Tensor) else value
        for name, value in state["history"].items()
    }
    result = TrainingResult(
        module=members[0],
        outer_params={},
        calibrator=None,
        history=History(**history),
        **state["result"],
    )
    return TrainedMembers(members, state["held_out_logits"].numpy(), result)
