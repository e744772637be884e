"""One self-contained HTML page that says how far predictions can be trusted, and the same as JSON and Markdown."""

from selfcal.reporting.page import Picture, report
from selfcal.reporting.summarise import summarise

__all__ = ["Picture", "report", "summarise"]
