"""Fitted models as folders of plain numbers and plain JSON: no pickle, nothing that could run code.

torch is loaded only when a name that needs it is first used, so that a folder can be checked without it.
"""

from typing import TYPE_CHECKING

from selfcal._support.lazy_names import lazy_names

if TYPE_CHECKING:
    from selfcal.storage.files import FORMAT_VERSION, read_extra
    from selfcal.storage.model import Storable, describe, load_calibrator, save_calibrator
    from selfcal.storage.state import ClassifierState

_HOME = {
    "FORMAT_VERSION": "files",
    "ClassifierState": "state",
    "Storable": "model",
    "describe": "model",
    "load_calibrator": "model",
    "read_extra": "files",
    "save_calibrator": "model",
}

__all__ = [
    "FORMAT_VERSION",
    "ClassifierState",
    "Storable",
    "describe",
    "load_calibrator",
    "read_extra",
    "save_calibrator",
]

__getattr__ = lazy_names(__name__, _HOME)
