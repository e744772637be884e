"""Draw the layers of the import contract, with two walks through them: ``python -m docs.architecture``."""

from __future__ import annotations

import tomllib
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

HERE = Path(__file__).parent
PICTURE = HERE / "figures" / "architecture.png"

PURPOSE = {
    "commands": "the command line: parse, call, print",
    "integrations": "other people's tools",
    "experiments": "the papers' experiments; table models",
    "reporting": "reports; the scikit-learn API;\nfigures; abstaining",
    "storage": "model folders, ONNX",
    "recipes": "named methods: the only place that\nnames concrete parts",
    "ensembles": "several models as one; label noise;\nseveral answers of one",
    "losses": "the parts of a method;\nnone imports another",
    "training": "Recipe, interfaces, the one loop",
    "uncertainty": "scores of doubt (NumPy)",
    "calibrators": "post-hoc calibration (NumPy)",
    "metrics": "scores; data sets; cells to numbers",
    "_support": "checks, files, locks, random streams",
    "errors": "error types and exit codes",
}
"""What a layer is for, by its first package."""
FIT = (
    "commands",
    "workflows",
    "tabular",
    "estimators",
    "recipes",
    "ensembles",
    "training",
    "reporting",
    "storage",
)
"""The packages that `selfcal fit` passes through, in order."""
STEP = ("recipes", "training", "outer", "losses", "optimizers", "hypergradients", "objectives")
"""The packages that one step of BO4SC passes through, in order."""
INK, FRAME, BAND, BLUE, ORANGE = "#1f2933", "#7b8794", "#f0f3f6", "#1d5fa8", "#b3470b"
WIDTH, BOXES, ROW, GAP = 8.0, 4.95, 0.42, 0.1  # inches


def layers() -> list[list[str]]:
    """The packages of each layer, from the top, as `pyproject.toml` has them for the linter."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    contract = next(c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in layer.replace("|", ":").split(":")] for layer in contract["layers"]]


def draw() -> Figure:
    """The picture: a band for each layer, what is imported below what imports it."""
    bands = [[packages[:4], packages[4:]] if len(packages) > 4 else [packages] for packages in layers()]
    height = sum(len(rows) * ROW + GAP for rows in bands) + 0.75
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    FigureCanvasAgg(figure)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(height, 0))
    ax.axis("off")
    top = _legend(ax)
    for rows in bands:
        _band(ax, rows, top)
        top += len(rows) * ROW + GAP
    return figure


def _legend(ax: Axes) -> float:
    text = {"va": "center", "fontsize": 9, "color": INK}
    ax.text(0.12, 0.18, "Each layer imports only from the layers below it.", weight="bold", **text)
    for x, mark, colour, words in (
        (0.25, "1", BLUE, "selfcal fit"),
        (1.55, "a", ORANGE, "one step of BO4SC"),
    ):
        _mark(ax, x, 0.47, mark, colour)
        ax.text(x + 0.17, 0.47, words, **text)
    return 0.7


def _band(ax: Axes, rows: list[list[str]], top: float) -> None:
    height = len(rows) * ROW
    ax.add_patch(_box(0.08, top, WIDTH - 0.16, height, facecolor=BAND, edgecolor=BAND))
    for place, packages in enumerate(rows):
        share = (BOXES - 0.1) / sum(len(name) + 5 for name in packages)
        left, middle = 0.14, top + (place + 0.5) * ROW
        for name in packages:
            width = share * (len(name) + 5)
            ax.add_patch(_box(left, middle - 0.16, width - 0.08, 0.32, facecolor="white", edgecolor=FRAME))
            ax.text(left + 0.1, middle, name, va="center", fontsize=10, color=INK, family="monospace")
            marks = [(order.index(name), c) for order, c in ((FIT, BLUE), (STEP, ORANGE)) if name in order]
            for number, (index, colour) in enumerate(reversed(marks)):
                mark = str(index + 1) if colour == BLUE else "abcdefg"[index]
                _mark(ax, left + width - 0.22 - 0.25 * number, middle, mark, colour)
            left += width
    words = {"va": "center", "fontsize": 9, "color": INK, "linespacing": 1.15}
    ax.text(BOXES + 0.16, top + height / 2, PURPOSE[rows[0][0]], **words)


def _box(x: float, y: float, width: float, height: float, **colours: str) -> FancyBboxPatch:
    style = "round,pad=0,rounding_size=0.05"
    return FancyBboxPatch((x, y), width, height, boxstyle=style, linewidth=0.8, **colours)


def _mark(ax: Axes, x: float, y: float, mark: str, colour: str) -> None:
    circle = {"boxstyle": "circle,pad=0.2", "facecolor": colour, "edgecolor": "none"}
    ax.text(x, y, mark, ha="center", va="center", fontsize=8.5, color="white", weight="bold", bbox=circle)


if __name__ == "__main__":
    draw().savefig(PICTURE, dpi=200)
