"""The reference of the Python API: a page for each public module, with every name that it exports.

The pages are written into `docs/reference/api` when the site is built. Nothing is listed by hand: the modules are
those of `selfcal.__all__` and the packages beside them that have an `__all__`; a name that two of them export has its
entry in the first, which is `selfcal` if it is there.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.nodes import Element, Node
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import GoogleDocstring

import selfcal
from selfcal import integrations

HERE = Path(__file__).parent
FOLDER = HERE / "reference" / "api"
EXPLAINING = ("start", "guides", "understanding")
"""The folders of the pages that may explain a name."""
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Reference):$", re.MULTILINE)
CODE = re.compile(r"```python\n(.*?)```|`([^`\n]+)`", re.DOTALL)
SURE = re.compile(r"(?<=\.)\w+|\w+(?=\()|\w*[A-Z_]\w*")
"""Words of code that are names: after a dot, before a bracket, or written as no ordinary word is."""
NAMED = re.compile(r"[A-Z._]")
"""What distinguishes a name in the text of a page from a word."""


@cache
def modules() -> list[ModuleType]:
    """The public modules, `selfcal` first."""
    named = [value for name in selfcal.__all__ if inspect.ismodule(value := getattr(selfcal, name))]
    packages = [
        import_module(f"selfcal.{found.name}") for found in iter_modules(selfcal.__path__) if found.ispkg
    ]
    tools = [import_module(f"{integrations.__name__}.{m.name}") for m in iter_modules(integrations.__path__)]
    others = {module for module in [*packages, *tools] if hasattr(module, "__all__")} - {*named}
    return [selfcal, *sorted({*named, *others}, key=lambda module: module.__name__)]


def names(module: ModuleType) -> list[str]:
    """The public names of a module, without those of modules."""
    listed = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
    ]
    return sorted(name for name in listed if not inspect.ismodule(getattr(module, name)))


@cache
def entries() -> dict[str, str]:
    """Every public name in full, with the name of its entry: another one if two modules export the same object."""
    first: dict[int, str] = {}
    found = {}
    for module in modules():
        for name in names(module):
            full = f"{module.__name__}.{name}"
            value = getattr(module, name)
            unique = inspect.isclass(value) or inspect.isroutine(value)
            found[full] = first.setdefault(id(value), full) if unique else full
    return found


def write_pages(app: Sphinx) -> None:
    """Write a page for each module, and leave those alone that stay as they are."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = {FOLDER / f"{module.__name__}.rst": "\n".join(_page(module)) + "\n" for module in modules()}
    for page in {*FOLDER.glob("*.rst")} - {*texts}:
        page.unlink()
    for page, text in texts.items():
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def _page(module: ModuleType) -> Iterator[str]:
    yield from (module.__name__, "=" * len(module.__name__), "", f".. automodule:: {module.__name__}", "")
    own = [f"{module.__name__}.{name}" for name in names(module)]
    yield from (".. list-table::", "   :class: summary", "")
    for full in own:
        yield f"   * - :py:obj:`{full.rpartition('.')[2]} <{entries()[full]}>`"
        yield f"     - {_first_sentence(full)}"
    for full in own:
        yield ""
        yield from _entry(full)


def _entry(full: str) -> Iterator[str]:
    module, _, name = full.rpartition(".")
    value = getattr(import_module(module), name)
    if entries()[full] != full:
        kind = "class" if inspect.isclass(value) else "function"
        yield from (f".. py:{kind}:: {name}", "")
        yield f"   Another name of :py:obj:`{entries()[full]}`."
    elif inspect.isclass(value):
        yield from (f".. autoclass:: {full}", "   :members:", "   :inherited-members:")
        yield from ("   :show-inheritance:", *_explained(full))
    elif inspect.isroutine(value):
        yield from (f".. autofunction:: {full}", *_explained(full))
    else:
        yield from (f".. py:data:: {name}", f"   :type: {type(value).__name__.lstrip('_')}", "")
        yield from (f"   {_first_sentence(full)}", *_explained(full))


def _first_sentence(full: str) -> str:
    module, _, name = full.rpartition(".")
    value = getattr(import_module(module), name)
    doc = (
        inspect.getdoc(value)
        if inspect.isclass(value) or inspect.isroutine(value)
        else _doc_of_constant(import_module(module), name)
    )
    return (doc or "").partition("\n\n")[0].replace("\n", " ")


def _doc_of_constant(module: ModuleType, name: str) -> str:
    """The string below the assignment, in the module or in that which it is imported from."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, following in pairwise(body):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if name in {getattr(target, "id", None) for target in targets} and isinstance(following, ast.Expr):
            return inspect.cleandoc(ast.literal_eval(following.value))
    for statement in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(statement, ast.ImportFrom) and name in {alias.name for alias in statement.names}:
            return _doc_of_constant(import_module(str(statement.module)), name)
    return ""


@cache
def _mentions() -> dict[str, tuple[Counter[str], Counter[str]]]:
    """How often each page that explains something has each word as code: surely as a name, and anyhow."""
    found = {}
    for folder in EXPLAINING:
        for page in sorted((HERE / folder).glob("*.md")):
            code = [block or span for block, span in CODE.findall(page.read_text())]
            sure = [name for text in code for name in SURE.findall(text)]
            place = page.relative_to(HERE).with_suffix("").as_posix()
            found[place] = Counter(sure), Counter(word for text in code for word in re.findall(r"\w+", text))
    return found


@cache
def _main_page(module: str) -> str:
    """The page that has the most names of a module."""
    own = [full.rpartition(".")[2] for full in entries() if full.rpartition(".")[0] == module]
    return max(_mentions(), key=lambda page: sum(name in _mentions()[page][0] for name in own))


def _explained(full: str) -> Iterator[str]:
    """A link to the page that has the name most often, if any has it; an ordinary word may be none elsewhere."""
    module, _, name = full.rpartition(".")
    counts = {page: words[page == _main_page(module)][name] for page, words in _mentions().items()}
    page = max(counts, key=lambda page: counts[page])
    if counts[page]:
        yield from ("", f"   Explained in :doc:`/{page}`.")


def public_role(role: str, raw: str, text: str, line: int, inliner: Any) -> tuple[list[Node], list[Node]]:
    """Code in single backticks; a link if it can only mean one public name."""
    return [_linked(nodes.literal(raw, text), inliner.document.settings.env)], []


def link_code(app: Sphinx, document: nodes.document) -> None:
    """Link code in the text of pages such as `Recipe` or `metrics.compare`: what no ordinary word is."""
    if app.env.docname.partition("/")[0] in EXPLAINING:
        for node in [*document.findall(nodes.literal)]:
            if NAMED.search(node.astext()) and not isinstance(node.parent, nodes.reference | nodes.title):
                node.parent.replace(node, _linked(node, app.env))


def _linked(node: nodes.literal, env: BuildEnvironment) -> Element:
    text = node.astext().removesuffix("()")
    module = env.ref_context.get("py:module")
    near = entries().get(f"{module}.{text}")
    found = {near} if near else {to for full, to in entries().items() if full.endswith(f".{text}")}
    if len(found) != 1:
        return node
    link = pending_xref("", node, refdomain="py", reftype="obj", reftarget=found.pop(), refexplicit=True)
    link["refdoc"] = env.docname
    return link


def skip_foreign(app: Sphinx, what: str, name: str, value: Any, *_: Any) -> bool | None:
    """Leave out what classes inherit from other libraries."""
    value = getattr(value, "fget", value)
    return (
        True
        if what == "class" and not (getattr(value, "__module__", None) or "selfcal").startswith("selfcal")
        else None
    )


def read_docstring(app: Sphinx, what: str, name: str, value: Any, *more: Any) -> None:
    """Read a docstring in Google's style, in which an indented paragraph is a formula."""
    options, lines = more
    formulas: list[str] = []
    for before, line in zip(["", *lines], lines, strict=False):
        if not before and line.startswith("    ") and not SECTION.search("\n".join(formulas)):
            formulas += ["::", ""]
        formulas.append(line)
    lines[:] = GoogleDocstring(
        formulas, app.config, app, "method" if what == "property" else what, name, value, options
    ).lines()


def hide_other_names(app: Sphinx, env: BuildEnvironment) -> None:
    """Let the search find an object by its first name only."""
    objects = env.domaindata["py"]["objects"]
    for full in (full for full, entry in entries().items() if full != entry):
        objects[full] = objects[full]._replace(aliased=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx what is done here."""
    app.add_role("public", public_role)
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("doctree-read", link_code)
    app.connect("env-updated", hide_other_names)
    return {"parallel_read_safe": True}
