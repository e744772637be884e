"""One self-contained HTML page that says how far predictions can be trusted."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from selfcal import __version__, metrics, plots
from selfcal._files import write_atomically
from selfcal.errors import DataError
from selfcal.predictions import Predictions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {"accuracy": "accuracy", "ece": "ECE", "log_loss": "log loss", "brier": "Brier"}


@dataclass(frozen=True)
class Picture:
    """A figure with its title and how to read it."""

    title: str
    reading: str
    figure: Figure

    @property
    def png(self) -> str:
        """The picture as base64 text."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        return base64.b64encode(buffer.getvalue()).decode()


def report(
    methods: Mapping[str, Predictions],
    path: str | os.PathLike[str],
    *,
    title: str = "How far can these predictions be trusted?",
    subtitle: str = "",
    pictures: Sequence[Picture] = (),
) -> Path:
    """Write one HTML file that needs nothing else, not even a network.

    Args:
        methods: Predictions on the same rows, by the method's name.
        path: Where to write.
        title: The page's heading.
        subtitle: What the data is, in a line.
        pictures: More figures to show after the reliability diagrams.

    Returns:
        The path written to.

    Example:
        >>> import numpy as np, tempfile
        >>> probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = report({"mine": Predictions.from_probabilities([0, 1, 1], probs)}, folder + "/r.html")
        ...     "<title>" in page.read_text()
        True
    """
    from jinja2 import Environment, PackageLoader

    if not methods:
        raise DataError("Expected predictions of at least one method to report on; got none.")
    first = next(iter(methods.values()))
    for name, predictions in methods.items():
        if predictions.probs.shape != first.probs.shape or (predictions.y != first.y).any():
            raise DataError(
                f"Methods must be judged on the same rows; {name!r} has {len(predictions.y)} rows in "
                f"{predictions.probs.shape[1]} classes, or other labels than {next(iter(methods))!r}."
            )
    reliability = Picture(
        "Reliability",
        "Above: how often each confidence occurs, with the mean confidence and the accuracy as dashed lines. "
        "Below: how often the model was right at each confidence. Bars that end below the diagonal mean "
        "over-confidence, above it under-confidence; whiskers are 95 % intervals.",
        plots.reliability_figure(
            {name: (p.correct, p.confidence) for name, p in methods.items()}, chance=1 / first.probs.shape[1]
        ),
    )
    environment = Environment(loader=PackageLoader("selfcal"), autoescape=True)
    page = environment.get_template("report.html.j2").render(
        title=title,
        subtitle=subtitle,
        verdicts=[verdict(name, p) for name, p in methods.items()],
        columns=[*COLUMNS.values(), "noise floor"],
        rows=[{"name": name, "cells": _cells(p)} for name, p in methods.items()],
        n_rows=f"{len(first.y):,}",
        warnings=[text for name, p in methods.items() for text in _warnings(name, p)],
        figures=[reliability, *pictures],
        version=__version__,
    )
    return write_atomically(path, page)


def verdict(name: str, predictions: Predictions) -> str:
    """One sentence on what a confidence of this method is worth.

    Example:
        >>> import numpy as np
        >>> sure = np.tile([0.95, 0.05], (200, 1))
        >>> verdict("Net", Predictions.from_probabilities(np.arange(200) % 2, sure))
        'Net: when it says 90 % or more (95 % on average), it is right 43-57 % of the time: over-confident.'
    """
    sure = predictions.confidence >= 0.9
    where = "when it says 90 % or more"
    if not sure.any():
        sure, where = ~sure, "over all rows"
    right = predictions.correct[sure]
    claimed = float(predictions.confidence[sure].mean())
    bounds = metrics.wilson_interval(right.mean(), len(right))
    low, high = (float(bound) for bound in bounds)
    judgement = "over-confident" if claimed > high else "under-confident" if claimed < low else "honest"
    return (
        f"{name}: {where} ({100 * claimed:.0f} % on average), it is right "
        f"{100 * low:.0f}-{100 * high:.0f} % of the time: {judgement}."
    )


def _cells(predictions: Predictions) -> list[str]:
    scores = predictions.scores()
    floor = metrics.ece_noise_floor(predictions.confidence)
    return [*(f"{scores[name]:.4f}" for name in COLUMNS), f"{floor.low:.4f}-{floor.high:.4f}"]


def _warnings(name: str, predictions: Predictions) -> list[str]:
    share = predictions.below_chance
    if not share:
        return []
    chance = 1 / predictions.probs.shape[1]
    return [
        f"{name} gives {share:.1%} of the rows a confidence below chance ({chance:.2f}): it says its own choice "
        "is worse than guessing, while another class would be the better choice."
    ]
