"""The scores of a report in a few lines of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfcal.commands._shared import columns_text, say

if TYPE_CHECKING:
    from selfcal.reporting.content import Estimate, Scores

_NAMES = {
    "accuracy": "accuracy",
    "ece": "calibration error (ECE)",
    "log_loss": "log loss",
    "brier_score": "Brier score",
}
_SHORT = {"ece": "ECE", "log_loss": "log loss", "brier": "Brier score"}
BY_CHANCE = "ECE expected by chance (perfectly calibrated model)"
_COLOURS = {"honest": "green", "over": "red", "under": "yellow"}
_FINDINGS = {"over": "over-confident", "under": "under-confident", "": ""}


def short_name(score: str) -> str:
    """The printed name of a score of `Predictions.scores`.

    >>> short_name("accuracy"), short_name("ece")
    ('accuracy', 'ECE')
    """
    return _SHORT.get(score, score)


def verdict_text(judged: Scores) -> str:
    """One line on whether the confidences are calibrated."""
    from selfcal.reporting._verdict import JUDGEMENTS

    return f"Verdict: {JUDGEMENTS[judged.judgement]}. {judged.verdict.text}"


def say_verdict(judged: Scores) -> None:
    """Print that line, with the judgement in colour where there is any."""
    from selfcal.reporting._verdict import JUDGEMENTS

    mark = f"Verdict: {JUDGEMENTS[judged.judgement]}."
    say(verdict_text(judged), mark=mark, colour=_COLOURS.get(judged.judgement, "yellow"))


def scores_text(judged: Scores, level: float) -> str:
    """The scores with their intervals."""
    rows = [("", "value", f"{level:.0%} interval")]
    for name, label in _NAMES.items():
        score: Estimate = getattr(judged, name)
        ends = "" if score.low is None else f"[{score.low:.4f}, {score.high:.4f}]"
        rows.append((label, f"{score.value:.4f}", ends))
    floor = judged.noise_floor
    rows.append((BY_CHANCE, f"{floor.mean:.4f}", f"[{floor.low:.4f}, {floor.high:.4f}]"))
    return columns_text(rows)


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
