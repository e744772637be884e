"""The files of a stored model: plain numbers and plain JSON, used only after they have been checked.

Nothing here can run code that a file brings along. Every file is read up to a limit, must begin as its type
requires, and must have the hash that `model.json` lists. `model.json` ends with the hash of all bytes before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

import selfcal
from selfcal._support.checks import one_of, shorten
from selfcal._support.files import previous, write_folder_atomically
from selfcal.errors import ConfigError, ModelFormatError, UnsealedModelWarning

FORMAT = "selfcal model"
FORMAT_VERSION = 2
"""In version 1, `model.json` itself had no hash."""
DESCRIPTION, TENSORS = "model.json", "model.safetensors"
PREPROCESSOR = "preprocessor.skops"
EXTRAS = (PREPROCESSOR, "report.html", "report.json", "model_card.md")
"""Optional files of the folder."""
MAX_JSON_BYTES = 1 << 25
"""Bytes of model.json, and of the header of the tensors, that are read at most."""
MAX_EXTRA_BYTES = 1 << 28
"""Bytes of each further file."""
SEAL = "sha256"
"""The last field of `model.json`."""

AnyPath = str | os.PathLike[str]
Tensors = dict[str, NDArray[Any]]

_KINDS: dict[bytes | tuple[bytes, ...], str] = {
    b"\x80": "a pickle, such as joblib and older torch files are",
    b"PK": "a zip archive, such as torch and skops files are",
    b"\x93NUMPY": "a NumPy file",
    b"\x1f\x8b": "a gzip file",
    (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"): "a zlib file, such as compressed joblib files are",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\x89HDF": "an HDF5 file",
    b"GGUF": "a GGUF file",
}


def write(path: AnyPath, description: dict[str, Any], tensors: Tensors, extras: Mapping[str, bytes]) -> Path:
    """Write the folder; the hashes are added to the description."""
    if unknown := [name for name in extras if name not in EXTRAS]:
        raise ConfigError(f"A model may come with {', '.join(EXTRAS)}; got {shorten(unknown[0])!r}.")
    if large := [name for name, data in extras.items() if len(data) > MAX_EXTRA_BYTES]:
        raise ConfigError(
            f"{large[0]} may have at most {MAX_EXTRA_BYTES:,} bytes; it has {len(extras[large[0]]):,}."
        )
    stored = safetensors.numpy.save({name: np.asarray(tensors[name], order="C") for name in sorted(tensors)})
    files = {TENSORS: stored, **extras}
    seals = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    }
    try:
        text = json.dumps(description | {"files": seals}, indent=1, allow_nan=False).removesuffix("\n}")
    except ValueError:
        raise ConfigError(
            "A model must have finite numbers to be stored; a value of a field is infinite."
        ) from None
    sealed = _sealed(text.encode())
    if len(sealed) > MAX_JSON_BYTES:
        raise ConfigError(
            f"{DESCRIPTION} would have {len(sealed):,} bytes, and may have {MAX_JSON_BYTES:,}: the names of classes "
            "and features are too long, or too many."
        )
    return write_folder_atomically(
        path, {DESCRIPTION: sealed, **files}, replaces=(DESCRIPTION, TENSORS, *EXTRAS)
    )


def model_files(path: AnyPath) -> list[Path]:
    """The files of a model folder, without reading them; a path that is no such folder is an error, as in `read`."""
    folder = _folder(path)
    try:
        files = list(folder.iterdir())
    except OSError as error:
        _unreadable(folder, error)
    if folder / DESCRIPTION not in files:
        raise ModelFormatError(f"{folder / DESCRIPTION} must be a file; it does not exist.")
    return files


def read(path: AnyPath) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The content of `model.json` and of every file it lists, after all hashes have been verified.

    A folder of format 1 has no hash of `model.json`: its description has no field `SEAL`.
    """
    folder = _folder(path)
    file = folder / DESCRIPTION
    data = _content(file, MAX_JSON_BYTES)
    description = _json(data, file)
    version = _version(folder, description)
    if (version > 1 or SEAL in description) and data != _sealed(data[: -len(_sealed(b""))]):
        raise ModelFormatError(
            f"{file} must end with the SHA-256 of all bytes before it; it does not, so it was damaged or edited. "
            "Restore it from a copy, or train again."
        )
    listed = field(description, "files", dict)
    field(listed, TENSORS, dict)
    if unknown := sorted(listed.keys() - {TENSORS, *EXTRAS}):
        raise ModelFormatError(f"{file} must list no file but those of a model; got {shorten(unknown[0])!r}.")
    return description, {name: _intact(folder / name, field(listed, name, dict)) for name in listed}


def opened(path: AnyPath, kind: str | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What `read` returns of a model of that kind; a warning, if it is not sealed, names the caller of the caller."""
    description, files = read(path)
    if kind is not None and field(description, "kind", str) != kind:
        raise ModelFormatError(
            f"{path} must hold a {kind}; it holds {shorten(description['kind'])!r}. Load it with that class."
        )
    if SEAL not in description:
        warnings.warn(
            f"{path} is not sealed: it is of format 1, in which a change of model.json is not detected. Load the "
            f"model and save it again to store it in format {FORMAT_VERSION}.",
            UnsealedModelWarning,
            stacklevel=3,
        )
    return description, files


def read_extra(path: AnyPath, name: str) -> bytes | None:
    """One of the further files; None if the model has none of that name. All files are verified.

    Args:
        path: The folder.
        name: ``preprocessor.skops``, ``report.html``, ``report.json`` or ``model_card.md``. Whoever reads the first,
            a zip archive, with skops must trust no types but those that skops knows.
    """
    one_of("name", name, EXTRAS)
    return read(path)[1].get(name)


def field(values: dict[str, Any], name: str, *kinds: type) -> Any:
    """The value of that name in a part of the description, if it is of one of these types."""
    value = values.get(name, ...)
    if type(value) not in kinds:
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ModelFormatError(
            f"{DESCRIPTION} must have {name!r} ({expected}); "
            + ("it has none." if value is ... else f"got a {type(value).__name__}.")
        )
    return value


def _sealed(text: bytes) -> bytes:
    """The JSON object that begins with this text, ended by a last field with the SHA-256 of the text."""
    return text + f',\n "{SEAL}": "{hashlib.sha256(text).hexdigest()}"\n}}'.encode()


def _version(folder: Path, description: dict[str, Any]) -> int:
    if description.get("format") != FORMAT:
        raise ModelFormatError(f"{folder} must hold a {FORMAT}; its {DESCRIPTION} is of something else.")
    version: int = field(description, "format_version", int)
    writer = shorten(field(description, "selfcal_version", str), 20)
    if not 1 <= version <= FORMAT_VERSION:
        raise ModelFormatError(
            f"{folder} was written by selfcal {writer} in format {shorten(version, 20)}; this is selfcal "
            f"{selfcal.__version__}, which reads formats 1 to {FORMAT_VERSION}. Upgrade selfcal to use it."
        )
    return version


def _folder(path: AnyPath) -> Path:
    folder = Path(path)
    try:
        if not folder.exists() and previous(folder).is_dir():
            return previous(folder)
        if not folder.is_dir():
            kind = f"; this is {_kind(_start(folder))}" if folder.exists() else ", but it does not exist"
            raise ModelFormatError(
                f"{folder} must be a folder with {DESCRIPTION} and {TENSORS}, as save writes it{kind}. No other "
                "format is read: files that can run code are refused."
            )
    except (OSError, ValueError) as error:
        _unreadable(folder, error)
    return folder


def _start(file: Path) -> bytes:
    if not file.is_file():  # a pipe would wait for ever
        return b""
    with open(file, "rb") as stream:
        return stream.read(16)


def _kind(start: bytes) -> str:
    return next((kind for first, kind in _KINDS.items() if start.startswith(first)), "something else")


def _content(file: Path, most: int) -> bytes:
    try:
        if file.is_symlink():
            raise ModelFormatError(
                f"{file} must be a file; it is a symbolic link, which is not followed. Put a copy of the file there."
            )
        if not file.is_file():
            raise ModelFormatError(
                f"{file} must be a file; it {'is something else' if file.exists() else 'does not exist'}."
            )
        if file.stat().st_size > most:
            raise ModelFormatError(
                f"{file} must have at most {most:,} bytes; it has {file.stat().st_size:,}."
            )
        return file.read_bytes()
    except (OSError, ValueError) as error:
        _unreadable(file, error)


def _unreadable(file: Path, error: Exception) -> NoReturn:
    if isinstance(error, ModelFormatError):
        raise error
    raise ModelFormatError(
        f"{file} could not be read: {getattr(error, 'strerror', None) or error}."
    ) from error


def _intact(file: Path, stored: dict[str, Any]) -> bytes:
    """The bytes of a file, if they are those that the model was stored with."""
    size, digest = field(stored, "bytes", int), field(stored, "sha256", str)
    most = size if file.name == TENSORS else min(size, MAX_EXTRA_BYTES)
    data = _content(file, max(most, 0))
    if file.name == TENSORS and data[8:9] != b"{":
        raise ModelFormatError(f"{file} must be a safetensors file; this is {_kind(data)}. It is not read.")
    if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
        raise ModelFormatError(
            f"{file} is damaged: its SHA-256 is not the one in {DESCRIPTION}. Restore it from a copy, or "
            "train again."
        )
    return data


def _json(data: bytes, file: Path, what: str = "be a JSON object") -> dict[str, Any]:
    """Parse JSON; duplicate names, NaN, infinity and deeper nesting than a model has are errors."""
    if not data.lstrip(b" \n").startswith(b"{"):
        raise ModelFormatError(f"{file} must {what}; this is {_kind(data)}. It is not read.")
    try:
        values: dict[str, Any] = json.loads(data, object_pairs_hook=_no_name_twice, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{file} must {what}: {error}.") from None
    return values


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name comes twice")
    return values


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def parse_tensors(data: bytes, path: AnyPath) -> Tensors:
    """Parse the tensors of the model in that folder; of two of one name the library would take the last."""
    file = Path(path) / TENSORS
    length = int.from_bytes(data[:8], "little")
    if length > min(MAX_JSON_BYTES, len(data) - 8):
        raise ModelFormatError(
            f"{file} must have a header of at most {MAX_JSON_BYTES:,} bytes; got {length:,}."
        )
    _json(data[8 : 8 + length], file, "have a header that is a JSON object")
    try:
        return dict(safetensors.numpy.load(data))
    except (SafetensorError, KeyError, ValueError, OverflowError, MemoryError) as error:
        raise ModelFormatError(f"{file} is no valid safetensors file: {shorten(error, 300)}.") from None
