"""How Sphinx builds the site: ``make docs``."""

import os
import re
import sys
from pathlib import Path

from docutils import nodes
from myst_nb.core import render
from nbformat import NotebookNode
from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import selfcal  # noqa: E402 (the checkout, if it is not installed)

project = "selfcal"
author = copyright = "the authors of selfcal"
version = release = selfcal.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docs.api",
    "docs.commands",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]

# Markdown: the text is that which GitHub shows, and anchors are those of GitHub
myst_enable_extensions: list[str] = []
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

# Docstrings: Google style; single backticks are code, which becomes a link where it is a public name
default_role = "public"
napoleon_google_docstring = napoleon_numpy_docstring = False  # docs.api calls it
napoleon_custom_sections = [("Reference", "References"), ("Try", "Example")]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "Float": "numpy.ndarray", "Int": "numpy.ndarray"}
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "selfcal"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results/measurements.md",
}
"""Files outside this folder that a page of the site includes: links to them lead to that page."""
NUMBER = re.compile(r"[-+−<]?\.?\d[\d.,]*\s?[%x]?( ?[±/] ?[-+]?[\d.,]+%?)*( [✓✗])?")
LONG = 50
"""Characters of a cell from which on it should be wide enough to read."""
SHORT = 24
"""Characters of code up to which it is not broken."""
LINK = re.compile(r"\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def follow_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to files that are pages lead to those pages."""
    here = Path(app.srcdir, page).parent

    def followed(link: re.Match[str]) -> str:
        file = os.path.relpath(here / link[1], ROOT)
        target = os.path.relpath(app.srcdir / PAGES[file], here) if file in PAGES else link[1]
        return f"]({target}{link[2] or ''})"

    source[0] = LINK.sub(followed, source[0])


def whole_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs of a cell with each stream in one piece.

    A command prints in pieces of a hundred characters, and `nb_merge_streams` ends a line after each of them.
    """
    whole: dict[str, NotebookNode] = {}
    others = []
    for output in outputs:
        if output["output_type"] != "stream":
            others.append(output)
        elif output["name"] in whole:
            whole[output["name"]]["text"] += output["text"]
        else:
            whole[output["name"]] = output
            others.append(output)
    return others


render.coalesce_streams = whole_streams


def mark_texts(app: Sphinx, document: nodes.document) -> None:
    """Let the style sheet know which texts must not be broken, numbers and short code, and which cells are long."""
    for cell in document.findall(nodes.entry):
        if NUMBER.fullmatch(cell.astext()):
            cell["classes"].append("number")
        elif len(cell.astext()) > LONG:
            cell["classes"].append("long")
    for code in document.findall(nodes.literal):
        if len(code.astext()) <= SHORT:
            code["classes"].append("short")


def setup(app: Sphinx) -> None:
    """Tell Sphinx what is done here."""
    app.connect("doctree-read", mark_texts)
    app.connect("source-read", follow_links)
