"""The calibration report in a model card of skops."""

from __future__ import annotations

from skops.card import Card

from selfcal.reporting.card import model_card
from selfcal.reporting.content import Report

__all__ = ["add_calibration"]

SECTION = "Calibration"


def add_calibration(card: Card, report: Report, *, section: str = SECTION) -> Card:
    """Add a report to a card: verdict, scores with intervals, thresholds for abstaining, data and limits.

    Args:
        card: A `skops.card.Card`, such as ``Card(clf)``.
        report: What `summarise` or `log_classifier` returns.
        section: The section that is added; those of the report are in it.

    Returns:
        The card.

    Example:
        >>> from skops.card import Card
        >>> from selfcal import Predictions
        >>> from selfcal.reporting import summarise
        >>> mine = Predictions.from_probabilities([0, 1, 1], [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
        >>> card = add_calibration(Card(None, template=None), summarise({"mine": mine}))
        >>> "accuracy" in card.select("Calibration/Scores").content
        True
    """
    head, *parts = model_card(report).split("\n## ")
    card.add(**{section: head.partition("\n")[2].strip()})
    for part in parts:
        title, _, content = part.partition("\n")
        card.add(**{f"{section}/{title}": content.strip()})
    return card
