"""A report as it is displayed in a notebook."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from selfcal.reporting.page import environment, template_text

if TYPE_CHECKING:
    from selfcal.reporting.content import Report

PICTURES = 4
"""The most methods that are drawn."""


def notebook_html(judged: Report) -> str:
    """Verdict, reliability diagrams and scores as a fragment of HTML, for notebooks of any colour.

    Nothing in it runs or is loaded: a style of its own, inline SVG, and every name escaped.

    Example:
        >>> from selfcal.reporting import summarise
        >>> from selfcal.reporting.predictions import Predictions
        >>> mine = Predictions.from_probabilities([0, 1, 1], [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
        >>> html = notebook_html(summarise({"<mine>": mine}))
        >>> "&lt;mine&gt;" in html, "<script" in html
        (True, False)
    """
    from markupsafe import Markup

    numbers = judged.to_dict()
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(
            numbers,
            style=Markup(template_text("notebook.css")),
            drawn=numbers["methods"][:PICTURES],
            # names for screen readers, apart from those of other reports on the page
            key=hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:8] + "-",
        )
    )
