"""skops archives that are the same bytes for the same content, and that are read without trust."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import skops.io

from selfcal.errors import ModelFormatError

MOST_UNPACKED = 2**30
"""Bytes that an archive may have once it is unpacked."""

_SCHEMA = "schema.json"


def dump(values: dict[str, Any]) -> bytes:
    """Return an archive of scikit-learn objects, arrays and plain values.

    skops names its parts by their addresses in memory, and dates them; here they are numbered, so that the same
    model has the same hash.

    Example:
        >>> load(dump({"a": [1, 2.5], "b": "text"}))
        {'a': [1, 2.5], 'b': 'text'}
    """
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(skops.io.dumps(values))) as given,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written,
    ):
        schema, names = json.loads(given.read(_SCHEMA)), _Numbers()
        names.replace(schema)
        parts = {new: given.read(old) for old, new in names.files.items()}
        for name, data in {**parts, _SCHEMA: json.dumps(schema, indent=1).encode()}.items():
            written.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def load(data: bytes) -> dict[str, Any]:
    """Return what `dump` was given; types that could run code are refused, and so is what swells beyond measure."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MOST_UNPACKED:
        raise ModelFormatError(f"it would take {size:,} bytes once unpacked")
    values: dict[str, Any] = skops.io.loads(data, trusted=[])
    return values


class _Numbers:
    """Gives every node a number of its own, and every file one by its first mention."""

    def __init__(self) -> None:
        self.nodes = 0
        self.files: dict[str, str] = {}

    def replace(self, node: Any) -> None:
        if isinstance(node, list):
            for part in node:
                self.replace(part)
        elif isinstance(node, dict):
            if "__id__" in node:
                self.nodes += 1
                node["__id__"] = self.nodes
            if isinstance(node.get("file"), str):
                old = node["file"]
                node["file"] = self.files.setdefault(old, f"{len(self.files)}.{old.rpartition('.')[2]}")
            for part in node.values():
                self.replace(part)
