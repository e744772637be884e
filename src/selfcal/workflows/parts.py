"""Evaluating predictions in many files: the sums of each, by several processes, kept on disk and merged in order."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from selfcal._support.checks import listed
from selfcal._support.files import remove_leftovers, write_atomically
from selfcal._support.locks import LOCK, locked
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.io import read_batches
from selfcal.workflows.layout import Layout
from selfcal.workflows.layout_search import find_layout
from selfcal.workflows.sums import Sums

FORMAT = 3
"""The version of the stored sums; others are not used."""

BATCH_CELLS = 2**22
MAX_BATCH_ROWS = 2**18
_UNUSED = (pl.Binary, pl.Duration, pl.Time, pl.Object)
SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".parquet", ".pq", ".arrow", ".feather")


def several(sources: Sequence[str]) -> bool:
    """Whether these are several files, a folder or a pattern."""
    return len(sources) > 1 or os.path.isdir(sources[0]) or _is_pattern(sources[0])


def find_parts(sources: Sequence[str]) -> list[str]:
    """The files in folders, those that match patterns, and files: in the order given, by number within each.

    Args:
        sources: Paths of files or folders, and patterns such as `part-*.parquet`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("p10.csv", "p9.csv", "_SUCCESS"):
        ...         _ = Path(folder, name).write_text("")
        ...     [os.path.basename(path) for path in find_parts([folder])]
        ['p9.csv', 'p10.csv']
    """
    found: list[str] = []
    for source in sources:
        if os.path.isdir(source):
            inside = [os.path.join(source, name) for name in os.listdir(source) if _is_table(name)]
            if not inside:
                raise DataError(
                    f"{source} must hold files of predictions ({', '.join(SUFFIXES)}); it has none. Check the folder."
                )
            found += sorted(inside, key=_by_number)
        elif _is_pattern(source):
            matching = [path for path in glob.glob(source) if os.path.isfile(path)]
            if not matching:
                raise DataError(
                    f"{source} must match files; it matches none. Check the folder and the pattern."
                )
            found += sorted(matching, key=_by_number)
        elif source == "-":
            raise ConfigError("Standard input cannot be one of several files. Write it to a file first.")
        else:
            found.append(source)
    real = [os.path.realpath(path) for path in found]
    for number, path in enumerate(real):
        if path in real[:number]:
            raise ConfigError(f"Each file must be named once; {found[number]} is named twice.")
    return found


@dataclass(frozen=True)
class PartSettings:
    """What the sums of a part depend on, besides its rows.

    Attributes:
        layout: The columns of the predictions, as found in the first part.
        kinds: The kind of each column of the first part.
        first: The name of the first part.
        drop_unlabelled: Drop rows without a label, instead of an error.
        n_bins: Number of bins of the calibration error.
        reading: The format of text files, as arguments of `read_batches`.
    """

    layout: Layout
    kinds: Mapping[str, str]
    first: str
    drop_unlabelled: bool
    n_bins: int
    reading: Mapping[str, Any]

    def empty(self) -> Sums:
        """Sums of no rows."""
        return Sums(self.layout, drop_unlabelled=self.drop_unlabelled, n_bins=self.n_bins)

    def columns(self, schema: pl.Schema) -> list[str]:
        """The columns to read; those of another schema than that of the first part are refused by name."""
        kinds = kinds_of(schema)
        missing = [name for name in self.kinds if name not in kinds]
        added = [name for name in kinds if name not in self.kinds]
        if missing or added:
            what = f"lacks {listed(missing, 5)}" if missing else f"also has {listed(added, 5)}"
            raise DataError(
                f"All parts must have the columns of {self.first}; this one {what}. Write it again."
            )
        used = self.layout.used
        for name in used:
            if kinds[name] != self.kinds[name]:
                raise DataError(
                    f"Column {name!r} must hold {self.kinds[name]}, as in {self.first}; here it holds {kinds[name]}. "
                    "Write the part again."
                )
        return used

    @property
    def batch_rows(self) -> int:
        """Rows that are read at a time: as many as give a number of cells, whatever the number of columns."""
        return min(MAX_BATCH_ROWS, max(1, BATCH_CELLS // len(self.layout.used)))

    def key(self, path: str) -> str:
        """A hash of these settings and of the name, size and time of a part."""
        of_file = os.stat(path)
        settings = asdict(self) | {"first": ""}
        known = [FORMAT, os.path.realpath(path), of_file.st_size, of_file.st_mtime_ns, settings]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class EvaluatedParts:
    """The sums of all parts, and what became of each.

    Attributes:
        sums: The sums of all rows.
        parts: Number of parts.
        reused: Number of parts whose sums were kept from a run before.
        skipped: Why each part was left out, for those that were.
    """

    sums: Sums
    parts: int
    reused: int
    skipped: tuple[str, ...]

    def facts(self, sources: Sequence[str]) -> dict[str, str]:
        """What a report says of the files."""
        found = {"files": f"{self.parts:,}: {', '.join(sources)}"}
        if self.skipped:
            found["files left out"] = f"{len(self.skipped):,}: {'; '.join(self.skipped)}"
        return found


def evaluate_parts(
    paths: Sequence[str],
    target: str,
    *,
    jobs: int = 1,
    folder: Path | None = None,
    skip_corrupt: bool = False,
    drop_unlabelled: bool = False,
    n_bins: int = 15,
    reading: Mapping[str, Any] | None = None,
    watch: Callable[[int, int], None] = lambda parts, rows: None,
    **options: Any,
) -> EvaluatedParts:
    """Evaluate predictions in many files, whose columns are found in the first.

    The result is that of one process, bit for bit: rows are added up in batches that depend on the part alone, and
    the sums of the parts in their order.

    Args:
        paths: The files.
        target: The column with the true classes.
        jobs: Number of processes.
        folder: Keeps the sums of each part, which is not read again as long as file and settings stay the same.
        skip_corrupt: Leave out parts that cannot be used, instead of an error.
        drop_unlabelled: Drop rows without a label, instead of an error.
        n_bins: Number of bins of the calibration error.
        reading: The format of text files, as arguments of `read_batches`.
        watch: Called with the number of parts and of rows so far.
        **options: Those of `find_layout`.
    """
    common = {"drop_unlabelled": drop_unlabelled, "n_bins": n_bins, "reading": dict(reading or {})}
    skipped: list[str] = []
    settings: PartSettings | None = None
    for path in paths:  # until the first that can be read
        try:
            settings = _first_settings(path, target, common, options)
            break
        except DataError as error:
            skipped.append(_skip(path, error, skip_corrupt))
    if settings is None:
        raise DataError(
            f"At least one file must be readable; got {len(paths)}, and skipped all. {skipped[0]}"
        )
    before = len(skipped)
    with nullcontext() if folder is None else sums_folder(folder):
        sums, reused, late = _merged(
            paths[before:],
            settings,
            folder,
            jobs=jobs,
            skip_corrupt=skip_corrupt,
            watch=lambda done, rows: watch(before + done, rows),
        )
    skipped += late
    if not sums.rows:
        reason = f" {skipped[0]}" if skipped else ""
        raise DataError(
            f"Evaluation needs at least one labelled row; got none in {len(paths)} files.{reason}"
        )
    return EvaluatedParts(sums, len(paths), reused, tuple(skipped))


def sums_folder(folder: Path) -> Any:
    """A context in which only this process keeps sums in a folder, after checking that nothing else is in it."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--sums must name a folder; {folder} is a file. Choose another name.")
    others = sorted(
        name
        for name in (os.listdir(folder) if folder.exists() else [])
        if name != LOCK and not re.fullmatch(r"\.?.*-[0-9a-f]{16}\.json(\.\d+\.tmp)?", name)
    )
    if others:
        raise ConfigError(
            f"--sums must name a folder that is new, empty or has only sums; {folder} has {others[0]!r}. "
            "Choose another."
        )
    return locked(folder)


def part_sums(path: str, settings: PartSettings, folder: Path | None, skip_corrupt: bool) -> Sums | str:
    """The sums of a part, which are also kept in the folder; or why it was skipped."""
    try:
        key = settings.key(path) if os.path.exists(path) else ""  # before reading: it may change meanwhile
        sums = settings.empty()
        rows = settings.batch_rows
        for batch in read_batches(path, batch_rows=rows, columns=settings.columns, **settings.reading):
            sums.update(batch)
    except DataError as error:
        return _skip(path, error, skip_corrupt)
    if folder is not None:
        text = json.dumps(sums.to_dict())
        kept = {"key": key, "sha256": hashlib.sha256(text.encode()).hexdigest(), "sums": text}
        write_atomically(_file(folder, path, key), json.dumps(kept))
    return sums


def kept_sums(path: str, settings: PartSettings, folder: Path | None) -> Sums | None:
    """The sums of a part that are in the folder, if they are whole and of the same file and settings."""
    try:
        if folder is None:
            return None
        key = settings.key(path)
        kept = json.loads(_file(folder, path, key).read_text())
        whole = hashlib.sha256(kept["sums"].encode()).hexdigest() == kept["sha256"] and kept["key"] == key
        return settings.empty().restored(json.loads(kept["sums"])) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # to be read again


def kinds_of(schema: pl.Schema) -> dict[str, str]:
    """The kind of each column."""
    return {
        name: "numbers" if dtype.is_numeric() else "text" if _is_text(dtype) else str(dtype)
        for name, dtype in schema.items()
    }


def _merged(
    paths: Sequence[str],
    settings: PartSettings,
    folder: Path | None,
    *,
    jobs: int,
    skip_corrupt: bool,
    watch: Callable[[int, int], None],
) -> tuple[Sums, int, list[str]]:
    """The sums of parts, how many had been kept, and the reasons for skipping others."""
    skipped: list[str] = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
    present = [folder is not None and _is_kept(path, settings, folder) for path in paths]
    calls = [
        (path, settings, folder, skip_corrupt) for path, here in zip(paths, present, strict=True) if not here
    ]
    results = _results(calls, jobs)
    sums = settings.empty()
    for number, (path, here) in enumerate(zip(paths, present, strict=True), start=1):
        found = kept_sums(path, settings, folder) if here else next(results)
        if found is None:  # damaged, or changed since
            found = part_sums(path, settings, folder, skip_corrupt)
        if isinstance(found, str):
            skipped.append(found)
        else:
            sums.merge(found)
        watch(number, sums.rows)
    return sums, sum(present), skipped


def _results(calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Sums | str]:
    if min(jobs, len(calls)) <= 1:
        return (part_sums(*call) for call in calls)
    from selfcal._support.jobs import run_calls  # joblib takes a while to import

    return run_calls(part_sums, calls, n_jobs=min(jobs, len(calls)))


def _first_settings(
    path: str, target: str, common: Mapping[str, Any], options: Mapping[str, Any]
) -> PartSettings:
    schemas = []

    def every(schema: pl.Schema) -> list[str]:
        schemas.append(schema)
        return [name for name, dtype in schema.items() if dtype not in _UNUSED]

    batches = read_batches(path, columns=every, **common["reading"])
    layout = find_layout(next(batches), target, **options)
    return PartSettings(layout, kinds_of(schemas[0]), path, **common)


def _skip(path: str, error: DataError, skip_corrupt: bool) -> str:
    """The reason, with the name of the part, or an error with it."""
    reason = str(error) if path in str(error) else f"{path}: {error}"
    if not skip_corrupt:
        raise DataError(reason) from error
    return reason


def _is_kept(path: str, settings: PartSettings, folder: Path) -> bool:
    return os.path.exists(path) and _file(folder, path, settings.key(path)).exists()


def _file(folder: Path, path: str, key: str) -> Path:
    return folder / f"{Path(path).name[:100]}-{key[:16]}.json"


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, (pl.String, pl.Categorical, pl.Enum, pl.Null))


def _is_pattern(source: str) -> bool:
    return glob.has_magic(source) and not os.path.exists(source)


def _is_table(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(SUFFIXES) and name[0] not in "._"


def _by_number(path: str) -> list[tuple[int, str]]:
    """Names in the order of the numbers in them."""
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in re.split(r"(\d+)", path)]
