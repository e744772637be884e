"""Rendering of a report as one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.files import write_together
from selfcal.errors import ConfigError
from selfcal.reporting._explorer import FULL_MATRIX_CLASSES, PAIRS_SHOWN
from selfcal.reporting._names import counted
from selfcal.reporting._verdict import JUDGEMENTS, USEFULNESS, percent_range
from selfcal.reporting.card import model_card
from selfcal.reporting.content import Importance, Provenance, Report
from selfcal.reporting.predictions import Predictions
from selfcal.reporting.summarise import TITLE, summarise

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

    from selfcal.label_noise.audit import LabelAudit

JSON = partial(json.dumps, allow_nan=False)
COLUMNS_SHOWN = 30
SLIDER = ((0.0, 0), (0.5, 200), (0.9, 500), (0.99, 720), (0.999, 860), (1.0, 1000))
"""The scale of the slider: thresholds and their places, finer near certainty; between them it is linear."""


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
    title: str = TITLE,
    subtitle: str = "",
    classes: ArrayLike | None = None,
    row_names: Sequence[object] | None = None,
    settings: Mapping[str, object] | None = None,
    notes: Sequence[str] = (),
    groups: Mapping[str, ArrayLike] | None = None,
    importance: Importance | None = None,
    provenance: Provenance | None = None,
    labels: LabelAudit | None = None,
    pictures: Sequence[Picture] = (),
    **options: Any,
) -> Path:
    """Write one self-contained HTML file, which works offline, and its numbers beside it.

    Beside `report.html` come `report.json`, which holds every number of the page, and `model_card.md`.

    Args:
        methods: Predictions on the same rows, by the method's name.
        path: The output file; ends in `.html`.
        title: The page's heading.
        subtitle: A description of the data, in a line or two.
        classes: The name of each class; by default its code.
        row_names: A name for each row. Only with them are single rows shown: the worst mistakes.
        settings: Further facts about data and training, by name.
        notes: Remarks on the data and the training, each a sentence or two.
        groups: For each name, such as "age", a value per row: calibration is also evaluated for each group of rows.
        importance: Which columns matter, as `permutation_importance` returns it.
        provenance: Where the report comes from; by default only today's date.
        labels: An audit of the training labels, to show the rows that look wrong.
        pictures: More figures to show after the tables.
        **options: `novelty`, `n_bins`, `level`, `n_worst`, `n_resamples` and `seed`, as in `summarise`.

    Returns:
        The path of the page.

    Example:
        >>> import numpy as np, tempfile
        >>> probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = report({"mine": Predictions.from_probabilities([0, 1, 1], probs)}, folder + "/report.html")
        ...     sorted(file.name for file in page.parent.iterdir())
        ['model_card.md', 'report.html', 'report.json']
    """
    target = Path(path)
    if target.suffix != ".html":
        raise ConfigError(f"path must end in .html, since report.json goes beside it; got {str(path)!r}.")
    judged = summarise(
        methods,
        title=title,
        subtitle=subtitle,
        classes=classes,
        row_names=row_names,
        settings=settings,
        notes=notes,
        groups=groups,
        importance=importance,
        provenance=provenance or Provenance(datetime.now().astimezone().date().isoformat()),
        labels=labels,
        **options,
    )
    return write_page(judged, target, pictures)


def write_page(judged: Report, page: Path, pictures: Sequence[Picture] = ()) -> Path:
    """Write a report as a page, with its numbers and its card beside it."""
    contents = (
        render(judged, pictures),
        JSON(judged.to_dict(), indent=1) + "\n",
        model_card(judged),
    )
    write_together(dict(zip(report_files(page), contents, strict=True)))
    return page


def report_files(page: Path) -> tuple[Path, Path, Path]:
    """The files that `report` writes: the page, its numbers and its card."""
    return page, page.with_suffix(".json"), page.with_name(_beside(page.stem, "model_card.md"))


def render(judged: Report, pictures: Sequence[Picture] = ()) -> str:
    """The page of a report, with its style and script inside and nothing else allowed to run."""
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

    style, script = template_text("report.css"), template_text("report.js")
    numbers = judged.to_dict()  # template and script read the names of the JSON file
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            numbers,
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
            embedded=htmlsafe_json_dumps(numbers, dumps=partial(JSON, separators=(",", ":"))),
            pictures=pictures,
            full_matrix=len(judged.classes) <= FULL_MATRIX_CLASSES,
            pairs_shown=PAIRS_SHOWN,
            top_risk=_top_risk(judged),
            columns_shown=COLUMNS_SHOWN,
            slider_stops=SLIDER,
            slider_scale=" ".join(f"{threshold:g}:{place}" for threshold, place in SLIDER),
        )
    )


def environment() -> Environment:
    """The templates, which escape everything, with the filters that they use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("selfcal.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": percent,
        "number": number,
        "counted": counted,
        "slider_place": slider_place,
    }
    made.globals |= {
        "percent_range": percent_range,
        "judgements": JUDGEMENTS,
        "usefulness": USEFULNESS,
    }
    return made


def template_text(name: str) -> str:
    """The text of a style sheet or script beside the templates."""
    return files("selfcal.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction in percent; halves are rounded up, as the page's script does it.

    >>> percent(0.1225), percent(1.0, 0)
    ('12.3%', '100%')
    """
    rounded = Decimal(100 * fraction).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded}%"


def number(value: float | None) -> str:
    """A count with thousands separators, a number to four decimal places, or "?" for None.

    >>> number(1234567), number(0.25), number(None)
    ('1,234,567', '0.2500', '?')
    """
    if value is None:
        return "?"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def slider_place(threshold: float) -> float:
    """The place of a threshold on the slider.

    >>> slider_place(0.95), slider_place(1.0)
    (622.2, 1000.0)
    """
    thresholds, places = zip(*SLIDER, strict=True)
    return round(float(np.interp(threshold, thresholds, places)), 1)


def _top_risk(judged: Report) -> float:
    """The upper end of the risk axis; risks of very few rows are noisy and may lie beyond it."""
    risks = [
        errors / accepted
        for method in judged.methods
        for errors, accepted in zip(method.reject.errors, method.reject.accepted, strict=True)
        if accepted >= 0.05 * judged.rows
    ]
    return min(top for top in (0.004, 0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if top >= max(risks))


def _hash(text: str) -> str:
    """The hash of an inline style or script for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _beside(stem: str, name: str) -> str:
    return name if stem == "report" else f"{stem}_{name}"
