"""The scores of a report in a few lines of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfcal.commands._shared import columns_text, say

if TYPE_CHECKING:
    from selfcal.reporting.content import Baseline, Estimate, Importance, MethodReport, Scores

_NAMES = {
    "accuracy": "accuracy",
    "ece": "calibration error (ECE)",
    "log_loss": "log loss",
    "brier_score": "Brier score (0 to 2, sum over classes)",
    "roc_auc": "ROC AUC",
}
_SHORT = {"ece": "ECE", "log_loss": "log loss", "brier": "Brier score"}
BY_CHANCE = "ECE expected by chance"
_COLOURS = {"honest": "green", "over": "red", "under": "yellow"}
_FINDINGS = {"over": "over-confident", "under": "under-confident", "": ""}


def short_name(score: str) -> str:
    """The printed name of a score of `Predictions.scores`.

    >>> short_name("accuracy"), short_name("ece")
    ('accuracy', 'ECE')
    """
    return _SHORT.get(score, score)


def verdict_text(judged: Scores) -> str:
    """One line on whether the confidences are calibrated, and another if they are of no use."""
    from selfcal.reporting._verdict import JUDGEMENTS

    text = f"Verdict: {JUDGEMENTS[judged.judgement]}. {judged.verdict.text}"
    useful = judged.usefulness
    return text if useful is None or useful.kind == "better" else f"{text}\n{useful.text}"


def say_verdict(judged: Scores) -> None:
    """Print that text, with the judgement in colour where there is any."""
    from selfcal.reporting._verdict import JUDGEMENTS

    mark = f"Verdict: {JUDGEMENTS[judged.judgement]}."
    say(verdict_text(judged), mark=mark, colour=_COLOURS.get(judged.judgement, "yellow"))


def scores_text(judged: Scores, level: float, baseline: Baseline | None = None) -> str:
    """The scores with their intervals, and what always predicting the base rates would score."""
    rows = [("", "value", f"{level:.0%} interval", "" if baseline is None else "base rates")]
    for name, label in _NAMES.items():
        score: Estimate | None = getattr(judged, name)
        if score is None:
            continue
        ends = "" if score.low is None else f"[{score.low:.4f}, {score.high:.4f}]"
        coin = getattr(baseline, name, None)
        rows.append((label, f"{score.value:.4f}", ends, "" if coin is None else f"{coin:.4f}"))
    floor = judged.noise_floor
    rows.append((BY_CHANCE, f"{floor.mean:.4f}", f"[{floor.low:.4f}, {floor.high:.4f}]", ""))
    return columns_text(rows)


def groups_text(judged: MethodReport) -> str:
    """The verdict and the scores for each group of rows, after an empty line; nothing without groups."""
    parts = []
    for by in judged.by_group:
        rows = [("group", "rows", "confidence", "accuracy", "interval", "")]
        rows += [
            (
                group.name,
                f"{group.rows:,}",
                f"{group.claimed:.1%}",
                f"{group.right:.1%}",
                f"[{group.low:.1%}, {group.high:.1%}]",
                {**_FINDINGS, "mixed": "over- and under-confident"}[group.finding],
            )
            for group in by.groups
        ]
        parts.append(f"\n{by.text}\n{columns_text(rows)}")
    return "\n".join(parts)


def columns_that_matter(importance: Importance, most: int = 5) -> str:
    """The columns that matter most, in a line."""
    found = [one.column for one in importance.columns if one.finding]
    if not found:
        return "No column matters beyond noise."
    more = len(found) - most
    return f"Columns that matter most: {', '.join(found[:most])}{f' and {more:,} more' if more > 0 else ''}."


def ranges_text(judged: Scores) -> str:
    """The accuracy for each range of confidence."""
    rows = [("confidence", "rows", "accuracy", "interval", "")]
    for group in judged.by_range:
        rows.append(
            (
                f"{100 * group.start:.0f}-{100 * group.end:.0f}%",
                f"{group.rows:,}",
                f"{group.right:.1%}",
                f"[{group.low:.1%}, {group.high:.1%}]",
                _FINDINGS[group.finding],
            )
        )
    return columns_text(rows)
