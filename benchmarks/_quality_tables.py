"""The cells of the quality benchmark as the sections of a page; every number and every verdict is worked out here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from matplotlib.figure import Figure

from benchmarks._quality_board import Board, Gap, Row, ranking
from benchmarks._quality_methods import AUTO, LABELS, ORACLE, REFERENCE
from benchmarks._quality_picture import rank_figure
from benchmarks._quality_targets import targets

SCORES = {
    "log_loss": ("Log loss", 4, False),
    "brier": ("Brier score", 4, False),
    "smooth_ece": ("smECE", 4, False),
    "noise_free_error": ("Noise-free calibration error against the known posterior", 4, False),
    "accuracy": ("Accuracy", 4, True),
    "aurc": ("AURC", 4, False),
    "audit_auc": ("Area under the curve of the label audit", 3, True),
    "seconds": ("Training, seconds of one core", 1, False),
}
"""By score: its title, its digits, and whether more is better."""

NOISY_SCORES = ("log_loss", "smooth_ece", "noise_free_error", "accuracy", "audit_auc")
"""What is shown where labels are wrong; the JSON file has the others, too."""

PICTURE = "quality-ranks"
KINDS = {"generated": "generated sets", "table": "tables", "images": "small images"}
NOTHING = "Not measured."


def sections(rows: Iterable[Row]) -> dict[str, str]:
    """Markdown by title; the titles are the same whatever was measured."""
    board = Board(rows)
    found = {
        "Quality: headline": headline(board),
        "Quality: targets": "\n".join(f"- {target}." for target in targets(board)),
        "Quality: ranks": ranks(board),
        "Quality: cells": cells(board),
    }
    for kind, words in KINDS.items():
        found[f"Quality: {words}"] = scores(board, 0.0, board.sets(0.0, kind))
    noisy = [
        f"### {100 * noise:.0f}% wrong training labels, {words}\n\n{scores(board, noise, names, NOISY_SCORES)}"
        for noise in board.noises
        for kind, words in KINDS.items()
        if noise > 0 and (names := board.sets(noise, kind))
    ]
    found["Quality: wrong labels"] = "\n\n".join(noisy) or NOTHING
    return found


def picture(rows: Iterable[Row]) -> Figure | None:
    """The critical-difference picture with clean labels; None before there are two methods to rank."""
    ranked = ranking(Board(rows), 0.0)
    return rank_figure(ranked, LABELS, AUTO) if len(ranked.ranks) > 1 else None


def headline(board: Board) -> str:
    """One line a method: mean rank, and on how many sets its log loss beats the reference clearly, or loses to it."""
    ranked = ranking(board, 0.0)
    names = board.sets(0.0)
    lines = []
    for method in board.methods(0.0, names):
        if method == ORACLE:
            continue
        gaps = [gap for n in names if (gap := board.gap("log_loss", 0.0, n, method, REFERENCE)) is not None]
        better, worse = (sum(gap.clear and sign * gap.mean > 0 for gap in gaps) for sign in (-1, 1))
        closed = _share(board.share_closed(0.0, board.sets(0.0, "generated"), method))
        lines.append(
            [
                LABELS[method],
                f"{ranked.ranks[method]:.1f}" if method in ranked.ranks else "",
                f"{better} / {len(gaps) - better - worse} / {worse}" if gaps and method != REFERENCE else "",
                closed if method != REFERENCE else "",
            ]
        )
    heads = (
        "method",
        "mean rank in log loss",
        f"clearly better / open / clearly worse than {LABELS[REFERENCE]}",
        "fraction of its distance to Bayes closed",
    )
    return "\n".join(table(heads, lines)) if lines else NOTHING


def scores(board: Board, noise: float, names: Sequence[str], chosen: Collection[str] = tuple(SCORES)) -> str:
    """One table a score, methods down and sets across; then the differences to the reference."""
    if not names:
        return NOTHING
    lines = [_seeds(board, noise, names)]
    for score in chosen:
        title, digits, more = SCORES[score]
        methods = [
            m for m in board.methods(noise, names) if any(board.values(score, noise, n, m) for n in names)
        ]
        if methods:
            lines += ["", f"**{title}**", ""]
            lines += _score_table(board, noise, names, methods, (score, digits, more))
        if score == "log_loss":
            lines += _differences(board, noise, names)
    return "\n".join(lines)


def ranks(board: Board) -> str:
    """Mean ranks in words, under the picture of those with clean labels."""
    lines = []
    for noise in board.noises:
        ranked = ranking(board, noise)
        if len(ranked.ranks) < 2:
            continue
        if noise == 0:
            text = (
                "Mean ranks of the methods; a bar joins those that the critical difference cannot tell apart"
            )
            lines += [f"![{text}](../figures/{PICTURE}.png)", ""]
        label = f"{100 * noise:.0f}% wrong labels" if noise else "Clean labels"
        places = "; ".join(f"{LABELS[m]} {place:.2f}" for m, place in ranked.ranks.items())
        lines.append(
            f"{label}, {len(ranked.sets)} sets: {places}. Critical difference {ranked.critical:.2f}"
            + (f", Friedman's p = {ranked.p_value:.2g}." if np.isfinite(ranked.p_value) else ".")
        )
        if ranked.left_out:
            names = ", ".join(LABELS[m] for m in ranked.left_out)
            lines.append(f"Left out, having results on too few sets: {names}.")
        lines.append("")
    return "\n".join(lines).strip() or NOTHING


def cells(board: Board) -> str:
    """How much of it there is, and what failed."""
    counts = [
        [
            LABELS[m],
            *(
                str(sum(len(board.values("log_loss", noise, n, m)) for n in board.sets(noise)))
                for noise in board.noises
            ),
        ]
        for m in LABELS
        if any(board.values("log_loss", noise, n, m) for noise in board.noises for n in board.sets(noise))
    ]
    heads = ("cells (set x seed)", *(f"{100 * noise:.0f}% wrong" for noise in board.noises))
    lines = table(heads, counts) if counts else [NOTHING]
    absent = [label for method, label in LABELS.items() if label not in {row[0] for row in counts}]
    if absent:
        lines += ["", f"Not measured: {', '.join(absent)}."]
    if board.failed:
        lines += ["", f"Cells that failed: {len(board.failed)}.", ""]
        lines += [
            f"- {row['set']}, {100 * row['noise']:.0f}% wrong, seed {row['seed']}, {LABELS[row['method']]}: "
            f"`{_plain(row['failed'])}`"
            for row in board.failed
        ]
    return "\n".join(lines)


def _score_table(
    board: Board, noise: float, names: Sequence[str], methods: Sequence[str], score: tuple[str, int, bool]
) -> list[str]:
    key, digits, more = score
    means = {(m, n): board.mean(key, noise, n, m) for m in methods for n in names}
    rivals = [m for m in methods if m != ORACLE]
    pick = np.nanmax if more else np.nanmin
    best = {
        n: pick(values)
        for n in names
        if np.isfinite(values := np.array([means[m, n][0] for m in rivals] or [np.nan])).any()
    }

    def shown(method: str, name: str) -> str:
        mean, error = means[method, name]
        if not np.isfinite(mean):
            return ""
        text = f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if np.isfinite(error) else "")
        return f"**{text}**" if key != "seconds" and method in rivals and mean == best[name] else text

    return _grid(methods, names, shown)


def _differences(board: Board, noise: float, names: Sequence[str]) -> list[str]:
    """Log loss less that of the reference, seed by seed, and who wins clearly."""
    methods = [
        m
        for m in board.methods(noise, names)
        if m not in (REFERENCE, ORACLE)
        and any(board.gap("log_loss", noise, n, m, REFERENCE) is not None for n in names)
    ]
    if not methods:
        return []

    def shown(method: str, name: str) -> str:
        gap = board.gap("log_loss", noise, name, method, REFERENCE)
        return "" if gap is None else _gap(gap)

    title = f"**Log loss less that of {LABELS[REFERENCE]}, paired; ✓ better, ✗ worse by over two standard errors**"
    lines = ["", title, "", *_grid(methods, names, shown)]
    if board.share_closed(noise, names, methods[0])[1]:
        title = f"**Fraction of the distance of {LABELS[REFERENCE]} to Bayes that is closed, in log loss**"
        lines += [
            "",
            title,
            "",
            *_grid(methods, names, lambda m, n: _share(board.share_closed(noise, [n], m))),
        ]
    return lines


def _gap(gap: Gap) -> str:
    if not np.isfinite(gap.error):
        return f"{gap.mean:+.4f}"
    mark = (" ✓" if gap.mean < 0 else " ✗") if gap.clear else ""
    return f"{gap.mean:+.4f} ± {gap.error:.4f}{mark}"


def _share(closed: tuple[float, int]) -> str:
    return f"{100 * closed[0]:.0f}%" if closed[1] else ""


def _seeds(board: Board, noise: float, names: Sequence[str]) -> str:
    counts = sorted(
        {
            len(v)
            for n in names
            for m in LABELS
            if (v := board.values("log_loss", noise, n, m)) and m != ORACLE
        }
    )
    if not counts:
        return "Means."
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean ± standard error over {span} seed{'s' * (counts[-1] != 1)}; the best is bold."


def _grid(methods: Sequence[str], names: Sequence[str], shown: Callable[[str, str], str]) -> list[str]:
    rows = [[LABELS[method], *(shown(method, name) for name in names)] for method in methods]
    return table(("method", *names), rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _plain(text: str) -> str:
    """One line of an error message that cannot end the code it stands in."""
    return " ".join(text.replace("`", "'").split())[:300]
