"""Classifiers with the interface of scikit-learn as candidates of an ensemble."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor, nn

from selfcal._support.checks import positive_int
from selfcal._support.progress import progress_bar
from selfcal.ensembles.ensemble import Candidate
from selfcal.ensembles.folds import Split
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows, TrainedMembers, held_out_logits
from selfcal.ensembles.tree_checkpoints import trained_once
from selfcal.errors import ConfigError
from selfcal.models.trees import TreeColumns, Trees
from selfcal.training.engine import TrainingResult
from selfcal.training.history import Recorder
from selfcal.training.run import OUT_OF_TIME, RAN_TO_THE_END

MIN_PROBABILITY = 1e-6
"""A class that a classifier excludes has this probability: a pool of logarithms needs one above zero."""
ROW_SECONDS = 1.5e-6
"""The time that each row takes for each tree of a forest on one core of a usual machine."""

SERVED_TREES = 2.5
"""Trees of a forest in a pool, in multiples of those of one member: the others would take most of its time."""


@dataclass(frozen=True)
class ClassifierCandidate(Candidate):
    """Any classifier with `fit` and `predict_proba`, such as those of scikit-learn, LightGBM and CatBoost.

    It is fitted on the features that networks see: scaled numbers, one-hot categories. Trees of scikit-learn can be
    stored and exported like networks; models with other classifiers can be used, but not stored.

    Args:
        classifier: The classifier; copies of it are fitted. If it has a `random_state` of None, each copy gets one.
        name: The name in `selection_` and in reports; by default the name of its class.
        max_rows: Rows that each copy is fitted on at most, a random part of those it may be; None for all. It keeps
            classifiers whose time or size grows with the rows within bounds.

    Example:
        >>> from sklearn.naive_bayes import GaussianNB
        >>> ClassifierCandidate(GaussianNB()).name
        'GaussianNB'
    """

    classifier: Any
    name: str = ""
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.max_rows is not None:
            positive_int("max_rows, if not None,", self.max_rows)
        if isinstance(self.classifier, type) or not all(
            callable(getattr(self.classifier, name, None)) for name in ("fit", "predict_proba", "get_params")
        ):
            raise ConfigError(
                "A candidate must be a classifier with fit, predict_proba and get_params, such as "
                f"RandomForestClassifier(); got {self.classifier!r}."
            )
        if not self.name:
            object.__setattr__(self, "name", type(self.classifier).__name__)

    @property
    def method(self) -> str:
        """The package that the classifier is from."""
        return type(self.classifier).__module__.partition(".")[0]

    def trainer(self, rows: Rows, splits: Sequence[Split], settings: MemberSettings) -> ClassifierTrainer:
        """Fits copies of the classifier one after the other."""
        return ClassifierTrainer(self, rows, splits, settings)

    def served(self, members: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """One forest with some trees of each member, if they are forests; otherwise the members."""
        forests = [member for member in members if isinstance(member, Trees) and member.averaged]
        if len(forests) < len(members) or len({tuple(forest.outputs) for forest in forests}) > 1:
            return members
        n_trees = forests[0].n_trees
        return [Trees.merged(forests, min(n_trees, math.ceil(SERVED_TREES * n_trees / len(forests))))]


class ClassifierTrainer:
    """Fits copies of a classifier, one for each split."""

    def __init__(
        self, candidate: ClassifierCandidate, rows: Rows, splits: Sequence[Split], settings: MemberSettings
    ) -> None:
        self.candidate = candidate
        self._rows, self._splits, self._settings = rows, splits, settings
        self._seed, self._n_classes = settings.seed, settings.make.n_classes
        # unknown for other classifiers, which the user has chosen: they are trained in any case
        trees = getattr(candidate.classifier, "n_estimators", 0) if _is_forest(candidate.classifier) else 0
        used = min(len(rows.y), candidate.max_rows or len(rows.y))
        self.expected_seconds = ROW_SECONDS * trees * len(splits) * used

    def train(self, members: Sequence[int], max_seconds: float) -> TrainedMembers:
        """Fit the copies of these numbers; fewer of them, but one at least, if time runs out.

        Trees that an earlier process has fitted are not fitted again.
        """
        classifier = self.candidate.classifier
        if not _is_trees(classifier):
            return self._trained(members, max_seconds)
        return trained_once(
            lambda: self._trained(members, max_seconds),
            self.candidate,
            members,
            rows=self._rows,
            splits=self._splits,
            settings=self._settings,
            parameters=classifier.get_params(),
        )

    def _trained(self, members: Sequence[int], max_seconds: float) -> TrainedMembers:
        started = time.perf_counter()
        modules: list[nn.Module] = []
        status = RAN_TO_THE_END
        with progress_bar("Fitting", len(members), self._settings.verbose) as advance:
            for done, member in enumerate(members):
                if modules and time.perf_counter() - started > max_seconds:
                    status = OUT_OF_TIME
                    break
                advance(done, f"now {member + 1}" if len(members) > 1 else "")
                modules.append(self._fitted(member))
        splits = [self._splits[member] for member in members[: len(modules)]]
        result = TrainingResult(
            module=modules[0],
            outer_params={},
            calibrator=None,
            history=Recorder().history(),
            n_steps=1,
            best_step=1,
            status=status,
            seconds=time.perf_counter() - started,
        )
        return TrainedMembers(modules, held_out_logits(modules, splits, self._rows.x), result)

    def _fitted(self, member: int) -> nn.Module:
        model, rows = clone(self.candidate.classifier), self._splits[member].train
        seed = (self._seed + member) % 2**31
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=seed)
        if self.candidate.max_rows is not None and len(rows) > self.candidate.max_rows:
            rows = np.random.default_rng(seed).permutation(rows)[: self.candidate.max_rows]
        y, weight = self._rows.y[rows], self._rows.weight
        x = self._rows.x.numpy()[rows]
        if weight is None or not has_fit_parameter(model, "sample_weight"):
            model.fit(x, y)
        else:
            model.fit(x, y, sample_weight=weight[rows])
        if _is_trees(model):
            return Trees.of(model, TreeColumns(x.shape[1]), self._n_classes)
        return FittedClassifierModule(model, self._n_classes)


def _is_trees(model: Any) -> bool:
    return _is_forest(model) or isinstance(model, HistGradientBoostingClassifier)


def _is_forest(model: Any) -> bool:
    return isinstance(model, (ExtraTreesClassifier, RandomForestClassifier))


class FittedClassifierModule(nn.Module):
    """A fitted classifier as a module that returns logits; it has no weights, and cannot be stored.

    Args:
        classifier: A classifier fitted on class codes.
        n_classes: Classes, one logit each.
    """

    def __init__(self, classifier: Any, n_classes: int) -> None:
        super().__init__()
        self.classifier = classifier
        self.n_classes = n_classes

    def forward(self, x: Tensor) -> Tensor:
        """The logarithms of the probabilities."""
        probs = np.zeros((len(x), self.n_classes))
        codes = np.asarray(self.classifier.classes_).astype(np.int64)
        probs[:, codes] = self.classifier.predict_proba(x.detach().cpu().numpy())
        logs = np.log(probs.clip(MIN_PROBABILITY)).astype(np.float32)
        return torch.from_numpy(logs).to(x.device)
