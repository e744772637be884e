"""Display of untrusted names: they cannot reorder, break or flood a page."""

from __future__ import annotations

import itertools
import re

from selfcal._support.checks import plain

LONGEST = 80
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]+")
REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#|~!$@]|:(?=/)|(?<=www)\.|^[-+=]|(?<=^\d)\.)", re.IGNORECASE)


def shown(name: object, longest: int = LONGEST) -> str:
    r"""A name as one short line: control characters are gone and the middle of a long one is left out.

    >>> shown("a\x1b[31m\nb"), len(shown("x" * 10_000))
    ('a [31m b', 80)
    """
    line = REORDERING.sub("", UNPRINTABLE.sub(" ", str(plain(name)))).strip()
    if len(line) > longest:
        line = f"{line[: longest - 21]}…{line[-20:]}"
    return line or "(no name)"


def shown_apart(names: list[object]) -> list[str]:
    """Names as `shown`, numbered where two would look the same.

    >>> shown_apart(["a", "a ", "b"])
    ['a', 'a (2)', 'b']
    """
    lines: dict[str, None] = {}
    for name in names:
        line = shown(name)
        numbered = (f"{line} ({number})" for number in itertools.count(2))
        lines[line if line not in lines else next(other for other in numbered if other not in lines)] = None
    return list(lines)


def counted(n: int, noun: str, plural: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "network"), counted(1077, "row"), counted(2, "class", "classes")
    ('1 network', '1,077 rows', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def in_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(in_markdown("<b>|[a](x)"))
    &lt;b&gt;\|\[a\]\(x\)
    """
    html = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return MARKDOWN.sub(r"\\\1", html)
