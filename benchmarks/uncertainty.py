"""Which uncertainty score finds strange rows, and which finds errors? And which method has the best probabilities?

    python -m benchmarks.uncertainty --json runs/uncertainty.json --data FOLDER --results benchmarks/RESULTS.md
    python -m docs.refresh

FOLDER holds `tab_NAME.csv.gz`, `fashion_mnist.npz` and `cifar10_small.npz`; without it, the sets of scikit-learn are
run. A class of each table is left out of training, a different one for each seed; the network for Fashion-MNIST sees
other images. What is finished is kept in the JSON file. Seeds from 100 on are for development.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from benchmarks import _uncertainty_sets as sets
from benchmarks._memory import peak_megabytes
from benchmarks._timing import best_seconds, write_section
from benchmarks._uncertainty_tables import SINGLE, sections
from selfcal import SelfCalibratedClassifier, metrics, recipes, uncertainty
from selfcal._support.checks import Float
from selfcal._support.locks import locked
from selfcal._support.parallel import Results, Row, Unit, run_units
from selfcal.errors import ConfigError, DataError
from selfcal.uncertainty import FeatureScore, LogitScore, MemberScore, UncertaintyScore

TITLE, KEY = "Uncertainty", ("set", "seed", "method")
METHODS: dict[str, str | None] = {
    SINGLE: "tabular",
    "temperature": "tabular",
    "laplace": "tabular",
    "mc_dropout": "tabular",
    "batch_ensemble": None,
    "ensemble": "tabular",
}
"""The methods that are compared, with their networks, which are alike if not part of the method."""

SCORES: dict[str, UncertaintyScore] = {
    "MaximumProbability": uncertainty.MaximumProbability(),
    "Margin": uncertainty.Margin(),
    "Entropy": uncertainty.Entropy(),
    "MaximumLogit": uncertainty.MaximumLogit(),
    "PNormLogit": uncertainty.PNormLogit(),
    "Energy": uncertainty.Energy(),
    "OpenMax": uncertainty.OpenMax(),
    "TrustScore": uncertainty.TrustScore(),
    "TrustScore, all training rows": uncertainty.TrustScore(max_rows=None),
    "KNearestNeighbors": uncertainty.KNearestNeighbors(),
    "KNearestNeighbors, all training rows": uncertainty.KNearestNeighbors(max_rows=None),
    "Mahalanobis": uncertainty.Mahalanobis(),
    "Reconstruction": uncertainty.Reconstruction(),
}
"""The scores of the single network."""

MEMBER_SCORES: dict[str, UncertaintyScore] = {
    "MaximumProbability": uncertainty.MaximumProbability(),
    "MutualInformation": uncertainty.MutualInformation(),
    "VariationRatio": uncertainty.VariationRatio(),
    "Disagreement": uncertainty.Disagreement(),
}
"""The scores of every method with several answers."""

SPEED_ROWS, MEMORY_SET = 5_000, "digits"


class Answers:
    """A fitted classifier that is asked only once for its answers to the same rows, by whatever score."""

    def __init__(self, model: SelfCalibratedClassifier) -> None:
        self._model = model
        self._kept: dict[tuple[str, int], tuple[Float, Any]] = {}  # with the rows, whose number stays theirs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        return partial(self._once, name, found) if callable(found) else found

    def _once(self, name: str, method: Callable[[Float], Any], X: Float) -> Any:
        if (name, id(X)) not in self._kept:
            self._kept[name, id(X)] = X, method(X)
        return self._kept[name, id(X)][1]


def available() -> list[str]:
    """The methods that there are."""
    return [name for name in METHODS if name in recipes.names()]


def classifier(method: str, seed: int) -> SelfCalibratedClassifier:
    return SelfCalibratedClassifier(method, network=METHODS[method], random_state=seed, verbose=False)


def work(folder: Path | None, scale: float, unit: Unit) -> list[Row]:
    """Train a method on one set, and judge its probabilities and the scores of its answers."""
    name, seed, method = unit
    task = sets.load(name, seed, folder, scale)
    with threadpool_limits(1):
        torch.set_num_threads(1)
        started = time.process_time()
        model = classifier(method, seed).fit(task.X, task.y)
        spent = time.process_time() - started
        rows = [{"what": "method", "fit_seconds": spent} | judged(model, task)]
        rows += scored(Answers(model), task, single=method == SINGLE)
    return [dict(zip(KEY, unit, strict=True)) | row for row in rows]


def judged(model: SelfCalibratedClassifier, task: sets.Task) -> Row:
    """How good the probabilities are, and how long they take."""
    probs, y = model.predict_proba(task.X_test), task.y_test
    many = np.resize(task.X_test, (SPEED_ROWS, task.X_test.shape[1]))
    took = best_seconds({"": partial(model.predict_proba, many)}, 1, time.process_time)[""]
    return {
        "log_loss": metrics.log_loss(y, probs),
        "ece": metrics.expected_calibration_error(y, probs),
        "accuracy": metrics.accuracy(y, probs),
        "rows_per_second": SPEED_ROWS / took,
    }


def scored(model: Answers, task: sets.Task, *, single: bool) -> Iterator[Row]:
    """Every score of the single network, or those of several answers if the model has some."""
    wrong = model.predict(task.X_test) != task.y_test
    for name, score in (SCORES if single else MEMBER_SCORES).items():
        try:
            usual, novel = doubts(score, model, task)
        except ConfigError:  # one answer alone
            if single:
                raise
            return
        except DataError as error:  # OpenMax, if a class is never predicted
            yield {"what": "failed", "score": name, "failed": str(error)}
            continue
        confidence = 1 - rankdata(usual) / len(usual)
        curve = metrics.confidence_risk_coverage_curve(~wrong, confidence)
        yield {"what": "errors", "score": name, "aurc": curve.aurc, "augrc": curve.augrc}
        for kind, values in novel.items():
            yield {"what": "novelty", "score": name, "novel": kind} | separation(usual, values)


def doubts(score: UncertaintyScore, model: Answers, task: sets.Task) -> tuple[Float, dict[str, Float]]:
    """The doubt in the rows of known classes, and in the others; scores learn from the training rows."""
    fitted: Any = score
    if isinstance(score, MemberScore):
        score.of(model, task.X_test[:2])
    if isinstance(score, FeatureScore):
        fitted = score.fit(task.X, task.y)
    elif isinstance(score, LogitScore):
        fitted = score.fit(model.logits(task.X), task.y)
    return fitted.of(model, task.X_test), {kind: fitted.of(model, X) for kind, X in task.novel.items()}


def separation(usual: Float, novel: Float) -> Row:
    """How well a threshold on the doubt tells novel rows from usual ones.

    `false_alarms` is the fraction of usual rows at or above the threshold that finds 95% of the novel rows; `found`
    the fraction of novel rows above the threshold that 5% of the usual rows exceed.
    """
    is_novel = np.repeat([False, True], [len(usual), len(novel)])
    return {
        "auroc": float(roc_auc_score(is_novel, np.concatenate([usual, novel]))),
        "false_alarms": float((usual >= np.quantile(novel, 0.05, method="lower")).mean()),
        "found": float((novel > np.quantile(usual, 0.95, method="higher")).mean()),
    }


def memory(methods: Sequence[str]) -> dict[str, float]:
    """Peak memory of training and predicting, each method in its own process."""
    call = [sys.executable, "-m", "benchmarks.uncertainty", "--json", "-", "--memory-of"]
    return {
        method: float(subprocess.run([*call, method], capture_output=True, text=True, check=True).stdout)
        for method in methods
    }


def own_peak(method: str) -> float:
    """Peak memory of one method above what its first use has loaded."""
    task = sets.load(MEMORY_SET, 0, None)
    many = np.resize(task.X_test, (SPEED_ROWS, task.X_test.shape[1]))

    def run(rows: int, new: int) -> None:
        classifier(method, 0).fit(task.X[:rows], task.y[:rows]).predict_proba(many[:new])

    run(200, 200)
    return peak_megabytes(partial(run, len(task.X), len(many)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True, help="keeps what is finished")
    parser.add_argument("--data", type=Path, help="folder with tables and images")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="100 and up for development")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows, to try things out")
    parser.add_argument(
        "--results", type=Path, help="also write the tables as sections of this Markdown file"
    )
    parser.add_argument("--memory-of", choices=METHODS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.memory_of:
        torch.set_num_threads(1)
        print(own_peak(asked.memory_of))
        return
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    units = list(product(sets.sets_in(asked.data), seeds, available()))
    kept = Results(asked.json, {"experiment": "uncertainty", "scale": asked.scale})
    with locked(asked.json.with_name(f".{asked.json.name}.lock")):
        rows = run_units(
            partial(work, asked.data, asked.scale), units, kept, jobs=asked.jobs, title=TITLE, key=KEY
        )
    for title, text in sections(rows, memory(available())).items():
        print(f"# {title}\n\n{text}\n")
        write_section(asked.results, title, text)


if __name__ == "__main__":
    main()
