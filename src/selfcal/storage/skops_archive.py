"""Reproducible skops archives, read without trusting their content."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

from selfcal.errors import ConfigError, ModelFormatError

MOST_UNPACKED = 2**28
"""Bytes that an archive may have once it is unpacked."""
MOST_SCHEMA = 2**26
"""Bytes of schema.json; any archive may unpack to as many."""
MOST_RATIO = 100
"""Maximum ratio of the unpacked to the packed size of a larger archive."""
MOST_MEMBERS = 2**17

_SCHEMA = "schema.json"
_ENTRY = b"PK\x01\x02"
"""The first bytes of the entry of a member in the list of members."""


def dump(values: dict[str, Any]) -> bytes:
    """Return an archive of scikit-learn objects, arrays and plain values.

    skops names its parts by their addresses in memory, and dates them; here they are numbered, so that the same
    model has the same hash.

    Example:
        >>> load(dump({"a": [1, 2.5], "b": "text"}))
        {'a': [1, 2.5], 'b': 'text'}
    """
    from skops.io import dumps  # which imports scikit-learn

    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(dumps(values))) as given,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written,
    ):
        schema, names = json.loads(given.read(_SCHEMA)), _Numbers()
        names.replace(schema)
        parts = {new: given.read(old) for old, new in names.files.items()}
        parts[_SCHEMA] = json.dumps(schema, indent=1).encode()
        for name, data in parts.items():
            written.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    packed = file.getvalue()
    if excess := _excess({name: len(data) for name, data in parts.items()}, len(packed)):
        raise ConfigError(
            f"The preprocessing cannot be stored: {excess}. Use fewer columns or shorter names."
        )
    return packed


def load(data: bytes) -> dict[str, Any]:
    """Return what `dump` was given; types that could run code and sizes that no model has are refused.

    The archive is unpacked here, no further than the sizes that were checked: skops would unpack a member to whatever
    size it has.
    """
    from skops.io import loads  # which imports scikit-learn

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as unpacked:
        for name, content in _members(data).items():
            unpacked.writestr(name, content)
    values: dict[str, Any] = loads(file.getvalue(), trusted=[])
    return values


def holds(data: bytes, name: str) -> bool:
    """Whether an archive has a value of that name."""
    return name in json.loads(_members(data)[_SCHEMA])["content"]


def load_text(data: bytes, *names: str) -> str:
    """One text in an archive, by the names that lead to it, without loading the objects beside it.

    Example:
        >>> load_text(dump({"a": {"b": "text"}}), "a", "b")
        'text'
    """
    node = json.loads(_members(data)[_SCHEMA])
    for name in names:
        node = node["content"][name]
    text = json.loads(node["content"])
    if node["__loader__"] != "JsonNode" or not isinstance(text, str):
        raise ModelFormatError(f"{'.'.join(names)} must be a text")
    return text


def _members(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive; all sizes are checked before the first is unpacked."""
    if data.count(_ENTRY) > MOST_MEMBERS:
        raise ModelFormatError(f"it has more than {MOST_MEMBERS:,} members")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if len(entries) < len(archive.infolist()):
            raise ModelFormatError("a member comes twice")
        if any(e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for e in entries.values()):
            raise ModelFormatError("a member is neither stored nor deflated")
        if excess := _excess({name: entry.file_size for name, entry in entries.items()}, len(data)):
            raise ModelFormatError(excess)
        members = {}
        for name, entry in entries.items():
            with archive.open(entry) as member:
                members[name] = member.read(entry.file_size)
        return members


def _excess(sizes: Mapping[str, int], packed: int) -> str | None:
    """A description of a size that is larger than that of any model, if there is one."""
    if sizes.get(_SCHEMA, 0) > MOST_SCHEMA:
        return f"{_SCHEMA} would take {sizes[_SCHEMA]:,} bytes once unpacked, and may take {MOST_SCHEMA:,}"
    size, most = sum(sizes.values()), min(MOST_UNPACKED, max(MOST_SCHEMA, MOST_RATIO * packed))
    return f"it would take {size:,} bytes once unpacked, and may take {most:,}" if size > most else None


class _Numbers:
    """Numbers the nodes, and the files in the order of their first mention."""

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
