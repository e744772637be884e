"""Reports on predictions: one self-contained HTML page, and the same as JSON and Markdown."""

from selfcal.reporting.content import Provenance, Report
from selfcal.reporting.importance import permutation_importance
from selfcal.reporting.novelty import novelty_report, strange_columns
from selfcal.reporting.page import Picture, report
from selfcal.reporting.summarise import summarise

__all__ = [
    "Picture",
    "Provenance",
    "Report",
    "novelty_report",
    "permutation_importance",
    "report",
    "strange_columns",
    "summarise",
]
