"""Faults, bad data and attacks: what may go wrong, and what comes of it.

Each row ends in the right result, in a lesser one that says so on standard error and in the report, or in one typed
error with its exit code: 2 usage, 3 bad data, 4 training failed, 5 bad model or checkpoint, 6 disk, 130 and 143
interrupted. Nothing is ever left half-written. A test says with `@pytest.mark.fault` which rows it is for, and
`test_rows.py` fails if a row has none.
"""

import pytest

ROWS = {
    "F1": "killed at any moment: going on ends in the same bits",
    "F2": "asked to stop once: saved, 143 or 130; twice: at once",
    "F3": "disk full at a checkpoint, the report or the model: 6, and what was there before is whole",
    "F4": "file too large, read-only or vanished folder, quota: as F3, before the first step where possible",
    "F5": "checkpoint cut off or changed: the one before it, with a warning; none left: 5",
    "F6": "checkpoint of other data, settings or version: refused by what differs",
    "F7": "loss that is no number: back, half the step, three times; then 4",
    "F8": "huge scores: finite probabilities of sum one; infinite ones: an error",
    "F9": "out of memory: half the batch, and a result that says so",
    "F10": "one of several processes killed: on from the checkpoint, to the same bits; one hangs: all end in time",
    "F11": "several processes, uneven parts: the numbers of one process, and every row once",
    "F12": "two processes in one folder: the second exits with 2",
    "F13": "a trial fails, its process dies, results or study are cut off: the others finish, finished ones stay",
    "F14": "clock, network, home folder, terminal, colours, hash seed: nothing depends on them",
    "F15": "calibrator that makes things worse or finds nothing: none is used, and that is said",
    "F16": "CPUs with other instruction sets: the same results within tolerance",
    "F17": "fits in several threads: each as it is alone, global random streams untouched",
    "F18": "the same command again while the first still trains: 2, and the first is not disturbed",
    "F19": "signals wherever they land, two of them 20 ms apart: 130 or 143, one line, no traceback",
    "F20": "time budget exhausted: terminal, report and inspect say what was left out",
    "D1": "empty file",
    "D2": "header without rows",
    "D3": "Latin-1",
    "D4": "UTF-16",
    "D5": "UTF-8 with a mark",
    "D6": "two columns of one name",
    "D7": "too many cells in a line",
    "D8": "too few cells in a line",
    "D9": "classes called NA or None",
    "D10": "infinite numbers",
    "D11": "text in a column of numbers",
    "D12": "another separator",
    "D13": "open quote, NUL byte, gzip by another name",
    "D14": "whole numbers beyond 64 bits",
    "D15": "a single class",
    "D16": "a class with one row, more classes than folds have rows for",
    "D17": "rows without label, spellings of one number",
    "D18": "labels that are noise, in part or all of them",
    "D19": "columns that say nothing, or the answer",
    "D20": "rows that come twice",
    "D21": "a table larger than memory",
    "D22": "very many columns, classes, categories",
    "D23": "other columns at prediction than in training",
    "D24": "names in any script, of any length",
    "D25": "Parquet, cut off or with types of its own",
    "D26": "copies of rows that differ in spelling, rounding noise, identifiers or dates",
    "D27": "classes called nan, inf or 1e3 among numbers",
    "D28": "a column that gives the target away, exactly or nearly",
    "D29": "many classes and little memory",
    "D30": "weights whose sum or square overflows: scaled first",
    "D31": "an output that would replace an input, a model, or something else: 2, unless --force",
    "D32": "tensors that have a gradient: detached",
    "D33": "a target that looks continuous",
    "D34": "currencies, percentages, units, grouped thousands, decimal commas: read as numbers, with a note",
    "D35": "predictions in any usual layout: understood, or asked for by name; an impossible confidence is refused",
    "D36": "JSON lines, zip and Excel: read; other formats: named",
    "S1": "pickles and their like, whatever they are called",
    "S2": "tensors that lie about themselves",
    "S3": "archives that reach out of their folder, swell, or are no files",
    "S4": "preprocessing state with types that could run code",
    "S5": "markup, scripts and templates in names",
    "S6": "formulas in a predictions file",
    "S7": "escape sequences and markup on the terminal",
    "S8": "configuration files: there are none, and none is ever read",
    "S11": "a changed byte in any file of a model: 5",
    "S12": "archives that swell, names of megabytes: refused before they are unpacked, cut when they are shown",
    "S13": "a symbolic link in place of a file of a model: 5",
}


def case(name, *values):
    """Parameters of a test for the row that the name begins with, such as D13-quote."""
    return pytest.param(*values, id=name, marks=pytest.mark.fault(name.partition("-")[0]))
