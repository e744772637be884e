import re

import pytest

from selfcal.reporting._names import in_markdown, shown, shown_apart
from tests.reporting.judged import HOSTILE


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_a_shown_name_is_one_short_line_that_can_be_written(name):
    line = shown(name)
    assert 0 < len(line) <= 80
    assert line == " ".join(line.splitlines())
    assert line.isprintable() or "\u202e" not in line
    line.encode()


def test_what_is_harmless_stays():
    assert shown("Größe_1 (é, 中文, שלום)") == "Größe_1 (é, 中文, שלום)"
    assert shown(3) == "3"


def test_both_ends_of_a_long_name_are_kept():
    line = shown("first" + "x" * 500 + "last")
    assert line.startswith("first")
    assert line.endswith("last")
    assert "…" in line


def test_names_that_look_the_same_are_told_apart():
    assert shown_apart(["a", "a\n", "a\u202e", "b"]) == ["a", "a (2)", "a (3)", "b"]


def test_a_number_given_to_tell_apart_is_not_somebody_elses_name():
    assert len(set(shown_apart(["a (2)", "a", "a "]))) == 3


def test_markdown_leaves_no_punctuation_with_a_meaning():
    escaped = in_markdown("a|b`c*d_e[f](g)<h>&i")
    assert not re.search(r"(?<!\\)[|`*_\[\]()]", escaped)
    assert "<" not in escaped
    assert escaped.replace("\\", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == (
        "a|b`c*d_e[f](g)<h>&i"
    )


@pytest.mark.parametrize(
    "text",
    ["- item", "+ item", "1. item", "# title", "https://x.org", "www.x.org", "a@x.org", "===", "![x](y)"],
)
def test_markdown_makes_no_lists_headings_or_links_of_names(text):
    escaped = in_markdown(text)
    assert "\\" in escaped
    assert escaped.replace("\\", "") == text


def test_what_markdown_leaves_alone_is_left_alone():
    assert in_markdown("BO4SC, early-stopped: 1.7 % / 2") == "BO4SC, early-stopped: 1.7 % / 2"
