"""The numbers of a report as a model card in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfcal.reporting._names import in_markdown
from selfcal.reporting._verdict import JUDGEMENTS

COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.5)


def model_card(numbers: Mapping[str, Any]) -> str:
    """What a reader of a model card needs to know about the confidence: verdict, scores, thresholds, limits."""
    level = f"{100 * numbers['level']:g} %"
    methods = numbers["methods"]
    lines = [f"# {in_markdown(numbers['title'])}", ""]
    if numbers["subtitle"]:
        lines += [in_markdown(numbers["subtitle"]), ""]
    lines += ["## Can the confidence be trusted?", ""]
    lines += [
        f"- **{in_markdown(m['name'])}**: {JUDGEMENTS[m['judgement']]}. {m['verdict']['text']}"
        for m in methods
    ]
    lines += [
        "",
        "## Scores",
        "",
        "| method | accuracy | ECE | noise floor of the ECE | log loss | Brier score |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for m in methods:
        floor = m["noise_floor"]
        cells = [_interval(m["accuracy"]), _interval(m["ece"]), f"{floor['low']:.4f} to {floor['high']:.4f}"]
        cells += [_interval(m["log_loss"]), _interval(m["brier_score"])]
        lines.append(f"| {in_markdown(m['name'])} | {' | '.join(cells)} |")
    lines += [
        "",
        f"In brackets: {level} intervals. An ECE within its noise floor cannot be told from perfect.",
        "",
    ]
    lines += [
        "## If it may decline to answer",
        "",
        "| method | answers | threshold | wrong among the answers |",
    ]
    lines += ["|---|---|---|---|"]
    for m in methods:
        lines += [
            f"| {in_markdown(m['name'])} | {row} |" for row in _thresholds(m["reject"], numbers["rows"])
        ]
    lines += ["", "## Data and settings", ""]
    facts = {
        "rows": f"{numbers['rows']:,}",
        "classes": f"{len(numbers['classes']):,}",
        "bins of the ECE": numbers["n_bins"],
        "selfcal": numbers["selfcal"],
        **numbers["settings"],
    }
    lines += [f"- {in_markdown(str(name))}: {in_markdown(str(value))}" for name, value in facts.items()]
    lines += [
        "",
        "## Limits",
        "",
        "These numbers hold for rows like the ones judged here. They say nothing about data that drifts away from",
        "them, and nothing about single groups of rows that were not looked at.",
    ]
    return "\n".join(lines) + "\n"


def _interval(score: Mapping[str, float | None]) -> str:
    value, low, high = ("?" if end is None else f"{end:.4f}" for end in score.values())
    return f"{value} [{low}, {high}]"


def _thresholds(reject: Mapping[str, Any], rows: int) -> list[str]:
    """The highest threshold on the grid that still answers as many rows as asked for, each once."""
    places = [
        max(place for place, count in enumerate(reject["accepted"]) if count >= coverage * rows)
        for coverage in COVERAGES
    ]
    return [
        f"{reject['accepted'][place] / rows:.1%} | {reject['thresholds'][place]:g} | "
        f"{reject['errors'][place] / reject['accepted'][place]:.2%} "
        f"[{reject['risk_low'][place]:.2%}, {reject['risk_high'][place]:.2%}]"
        for place in dict.fromkeys(places)
    ]
