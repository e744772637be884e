"""The list of faults, and the tests that are for each of them."""

import importlib
import inspect
import pkgutil

import pytest

from tests import faults

EVERY_ROW = {
    *(f"F{i}" for i in range(1, 21)),
    *(f"D{i}" for i in range(1, 37)),
    *(f"S{i}" for i in range(1, 14) if i not in (9, 10)),  # nothing is served; releases are not code
}

ELSEWHERE = ("tests.distributed.test_torchrun", "tests.workflows.test_layouts")
"""Tests of further rows, where their subject is."""


def marks_of(thing):
    """All marks of a test function or class, those of single cases and of methods among them."""
    own = list(getattr(thing, "pytestmark", []))
    cases = [c for mark in own if mark.name == "parametrize" for c in mark.args[1] if hasattr(c, "marks")]
    methods = [m for name, m in inspect.getmembers(thing) if name.startswith("test_")]
    return own + [mark for c in cases for mark in c.marks] + [m for each in methods for m in marks_of(each)]


def rows_with_tests():
    """Names of the quick tests for each row."""
    found = {}
    names = [f"{faults.__name__}.{info.name}" for info in pkgutil.iter_modules(faults.__path__)]
    for path in (*(name for name in names if ".test_" in name), *ELSEWHERE):
        module = importlib.import_module(path)
        for name, thing in vars(module).items():
            if not name.lower().startswith("test") or getattr(thing, "__module__", "") != module.__name__:
                continue
            marks = marks_of(thing)
            if not any(mark.name == "slow_faults" for mark in marks):
                for row in {row for mark in marks if mark.name == "fault" for row in mark.args}:
                    found.setdefault(row, []).append(f"{path}.{name}")
    return found


def test_the_list_is_whole():
    assert {*faults.ROWS} == EVERY_ROW


def test_every_row_is_covered():
    found = rows_with_tests()
    assert {*faults.ROWS} - {*found} == set(), "rows without a test"
    assert {*found} - {*faults.ROWS} == set(), "tests for rows that do not exist"


def test_marks_are_found_on_functions_cases_and_methods():
    @pytest.mark.fault("a")
    @pytest.mark.parametrize("x", [faults.case("b-1", 1), 2])
    def function(x):
        pass

    class Group:
        @pytest.mark.fault("c", "d")
        def test_it(self):
            pass

    def rows(thing):
        return {row for mark in marks_of(thing) if mark.name == "fault" for row in mark.args}

    assert (rows(function), rows(Group)) == ({"a", "b"}, {"c", "d"})
