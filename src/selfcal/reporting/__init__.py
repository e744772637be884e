"""Reports on predictions: one self-contained HTML page, and the same as JSON and Markdown."""

from selfcal.reporting.content import Report
from selfcal.reporting.page import Picture, report
from selfcal.reporting.summarise import summarise

__all__ = ["Picture", "Report", "report", "summarise"]
