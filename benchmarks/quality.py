"""Are our probabilities better than those a careful engineer gets? Every method on the same rows, paired over seeds.

    python -m benchmarks.quality --json benchmarks/quality.json --data FOLDER --jobs 2
    python -m docs.refresh benchmarks/quality.json

    python -m benchmarks.quality --json runs/fast.json --data FOLDER --fast --first-seed 100

The second takes minutes instead of hours: a few sets, methods and seeds. Seeds from 100 on are for development, those
below for reports; what is printed is of either, never of both.

FOLDER holds tables `tab_NAME.csv.gz` with the label in the last column and `fashion_mnist.npz`; without it, the five
generated sets are run. Every finished cell is kept in the JSON file: a run that was killed goes on where it stood,
and `--again auto` measures one method anew beside the others. Methods of packages that are not
installed (catboost; lightgbm; pytabkit with probmetrics and numba; cleanlab) are left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from benchmarks import _quality_sets as sets
from benchmarks._quality_board import DEVELOPMENT, is_reported
from benchmarks._quality_methods import AUTO, METHODS, ORACLE, REFERENCE, probabilities, suspicion
from benchmarks._quality_tables import sections
from selfcal import metrics
from selfcal._support.checks import Float, one_of
from selfcal._support.locks import locked
from selfcal._support.parallel import Results, Row, Unit, run_all_units

KEY = ("set", "noise", "seed", "method")
NOISE = (0.0, 0.1, 0.4)
SEEDS = {"generated": 10, "table": 5, "images": 5}
FAST: dict[str, Any] = {
    "sets": ("blobs-1.7", "spiral-2.5", "adult", "german_credit", "segment", "vehicle"),
    "methods": (ORACLE, REFERENCE, "sklearn-hgb", "lightgbm", "catboost", AUTO),
    "noise": (0.0,),
    "seeds": 2,
}
"""What `--fast` runs where nothing else is asked for, on as many rows as ever."""


def protocol(scale: float = 1.0) -> dict[str, object]:
    """What rows must have in common to stand in one file."""
    return {
        "experiment": "quality",
        "rows": [sets.TRAINING_ROWS, sets.TEST_ROWS, sets.MOST_TABLE_ROWS],
        "images": [sets.IMAGE_TRAINING_ROWS, sets.IMAGE_TEST_ROWS],
        "table_training_share": sets.TABLE_TRAINING_SHARE,
        "scale": scale,
    }


def cells(
    names: Sequence[str],
    methods: Sequence[str],
    noise: Sequence[float],
    seeds: int | None,
    first_seed: int = 0,
) -> list[Unit]:
    """What there is to do, clean labels and low seeds first: a run cut short has something to say of every set."""

    def wanted() -> Iterator[Unit]:
        most = seeds if seeds is not None else max(SEEDS.values())
        for share, count, name, method in product(noise, range(most), names, methods):
            kind = sets.kind_of(name)
            kinds = ("generated",) if method == ORACLE else METHODS[method].kinds
            skipped = method != ORACLE and METHODS[method].noisy_only and not share
            if kind in kinds and not skipped and (seeds is not None or count < SEEDS[kind]):
                yield name, share, first_seed + count, method

    return list(wanted())


def work(folder: Path | None, scale: float, unit: Unit) -> list[Row]:
    """Train one method on one task, and judge it; a failure is a row that says so."""
    name, noise, seed, method = unit
    row: Row = dict(zip(KEY, unit, strict=True)) | {"failed": None}
    try:
        with threadpool_limits(1):
            return [row | _measured(sets.load(name, seed, noise, folder, scale), method, seed)]
    except Exception as error:
        return [row | {"failed": f"{type(error).__name__}: {error}"}]


def _measured(task: sets.Task, method: str, seed: int) -> Row:
    if method == ORACLE:
        assert task.posterior is not None
        return scores(task, task.posterior)
    wall, own = time.perf_counter(), time.process_time()
    model = METHODS[method].train(task, seed)
    spent = {"seconds": time.process_time() - own, "wall_seconds": time.perf_counter() - wall}
    row = scores(task, probabilities(model, METHODS[method].rows(task)[1], task.n_classes)) | spent
    suspect = suspicion(model, task) if task.wrong.any() else None
    if suspect is not None:
        row["audit_auc"] = float(roc_auc_score(task.wrong, suspect))
    return row


def scores(task: sets.Task, probs: Float) -> Row:
    """How good the probabilities of the test rows are."""
    y = task.y_test
    row: Row = {
        "log_loss": metrics.log_loss(y, probs),
        "brier": metrics.brier_score(y, probs),
        "smooth_ece": metrics.smooth_calibration_error(y, probs),
        "accuracy": metrics.accuracy(y, probs),
        "aurc": metrics.aurc(y, probs),
        "train_rows": len(task.y),
        "test_rows": len(y),
    }
    if task.posterior is not None:
        row["noise_free_error"] = metrics.posterior_calibration_error(task.posterior, probs)
    return row


def forget(kept: Results, methods: Sequence[str], *, failed: bool) -> None:
    """Drop the rows of these methods, and those that failed if asked to, so that they are run anew."""
    if kept.path.exists():
        rows = kept.rows()
        kept.write(
            [r for r in rows if r["method"] not in methods and not (failed and r["failed"] is not None)]
        )


def available(methods: Sequence[str]) -> list[str]:
    """Those that can be run here; a line on standard error for each of the others."""
    found = []
    for name in methods:
        why_not = METHODS[name].why_not() if name in METHODS else ""
        if why_not:
            print(f"{name} is left out: {why_not}", file=sys.stderr, flush=True)
        else:
            found.append(name)
    return found


def share(text: str) -> float:
    """A fraction of wrong labels, from the command line."""
    value = float(text)
    if not (math.isfinite(value) and 0 <= value < 1):
        raise argparse.ArgumentTypeError(f"must be a fraction from 0 up to, not including, 1; got {text}")
    return value


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [ORACLE, *METHODS]
    parser.add_argument("--json", type=Path, required=True, help="keeps what is finished")
    parser.add_argument("--data", type=Path, help="folder with tables and images")
    parser.add_argument("--sets", nargs="+", help="names of sets; all by default")
    parser.add_argument("--methods", nargs="+", choices=every, metavar="METHOD", help="all by default")
    parser.add_argument("--noise", nargs="+", type=share, help="fractions of wrong training labels")
    parser.add_argument("--seeds", type=int, help="for every set; by default 10 for generated sets, else 5")
    parser.add_argument(
        "--first-seed", type=int, default=0, metavar="N", help="0 for reports; 100 and up for development"
    )
    parser.add_argument("--fast", action="store_true", help="by default, a few sets, methods and seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument(
        "--again", nargs="+", choices=every, default=[], metavar="METHOD", help="run these anew"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="fraction of all rows to use, to try things out"
    )
    return parser


def asked_cells(asked: argparse.Namespace) -> list[Unit]:
    """The cells of a command, of which `--fast` says what its other options leave open."""
    every = sets.sets_in(asked.data)
    usual: dict[str, Any] = {"sets": every, "methods": [ORACLE, *METHODS], "noise": NOISE, "seeds": None}
    if asked.fast:
        usual = FAST | {"sets": [name for name in FAST["sets"] if name in every]}
    chosen = {name: value if (value := getattr(asked, name)) is not None else usual[name] for name in usual}
    names = [one_of("--sets", name, every) for name in chosen["sets"]]
    return cells(names, available(chosen["methods"]), chosen["noise"], chosen["seeds"], asked.first_seed)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = options().parse_args(arguments)
    kept = Results(asked.json, protocol(asked.scale))
    units = asked_cells(asked)
    with locked(
        asked.json.with_name(f".{asked.json.name}.lock")
    ):  # two runs would overwrite each other's cells
        forget(kept, asked.again, failed=asked.retry)
        train = partial(work, asked.data, asked.scale)
        rows = run_all_units(train, units, kept, jobs=asked.jobs, title="Quality", key=KEY)
    shown = [row for row in kept.rows() if is_reported(row) == (asked.first_seed < DEVELOPMENT)]
    for title, body in sections(shown).items():
        print(f"# {title}\n\n{body}\n")
    failed = sum(row["failed"] is not None for row in rows)
    if failed:
        print(f"{failed} of {len(rows)} cells failed; --retry runs them again.", file=sys.stderr)


if __name__ == "__main__":
    main()
