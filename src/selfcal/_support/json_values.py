"""Values as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from selfcal._support.checks import plain
from selfcal.errors import ConfigError


def as_json(value: Any) -> Any:
    """The value as JSON has it; a float that is not finite becomes null.

    Example:
        >>> as_json({"widths": (np.int64(8), 4), "auc": float("nan")})
        {'widths': [8, 4], 'auc': None}
    """
    value = value.tolist() if isinstance(value, np.ndarray) else plain(value)
    if isinstance(value, Mapping):
        return {str(name): as_json(below) for name, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(below) for below in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(f"Only numbers, words, lists and dictionaries can be stored; got {value!r}.")
