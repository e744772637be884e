"""Fitted models as folders of plain numbers and plain JSON: no pickle, nothing that could run code."""

from selfcal.storage.model import (
    FORMAT_VERSION,
    Storable,
    describe,
    load_calibrator,
    read_extra,
    save_calibrator,
)
from selfcal.storage.state import ClassifierState

__all__ = [
    "FORMAT_VERSION",
    "ClassifierState",
    "Storable",
    "describe",
    "load_calibrator",
    "read_extra",
    "save_calibrator",
]
