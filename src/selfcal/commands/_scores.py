"""The numbers of a report in a few lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfcal.commands._shared import columns_text

_NAMES = {
    "accuracy": "accuracy",
    "ece": "calibration error (ECE)",
    "log_loss": "log loss",
    "brier_score": "Brier score",
}
_FINDINGS = {"over": "too sure", "under": "not sure enough", "": ""}


def verdict_text(judged: Mapping[str, Any]) -> str:
    """What the confidences are worth, in a line."""
    from selfcal.reporting._verdict import JUDGEMENTS

    return f"Verdict: {JUDGEMENTS[judged['judgement']]}. {judged['verdict']['text']}"


def scores_text(judged: Mapping[str, Any], level: float) -> str:
    """The scores with their intervals."""
    rows = [("", "value", f"{level:.0%} interval")]
    for name, label in _NAMES.items():
        score = judged.get(name)
        if score is not None:
            ends = "" if score["low"] is None else f"[{score['low']:.4f}, {score['high']:.4f}]"
            rows.append((label, f"{score['value']:.4f}", ends))
    floor = judged["noise_floor"]
    rows.append(
        (
            "ECE of an honest model, by chance",
            f"{floor['mean']:.4f}",
            f"[{floor['low']:.4f}, {floor['high']:.4f}]",
        )
    )
    return columns_text(rows)


def ranges_text(judged: Mapping[str, Any]) -> str:
    """How often it is right for each range of confidence."""
    rows = [("says", "rows", "is right", "interval", "")]
    for group in judged["by_range"]:
        rows.append(
            (
                f"{100 * group['from']:.0f}-{100 * group['to']:.0f} %",
                f"{group['rows']:,}",
                f"{100 * group['right']:.1f} %",
                f"[{100 * group['low']:.1f}, {100 * group['high']:.1f}] %",
                _FINDINGS[group["finding"]],
            )
        )
    return columns_text(rows)
