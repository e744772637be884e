"""A report as a model card in Markdown."""

from __future__ import annotations

from selfcal.reporting._names import in_markdown
from selfcal.reporting._verdict import JUDGEMENTS
from selfcal.reporting.content import BRIER_CONVENTION, Estimate, RejectCurve, Report

COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.5)


def model_card(judged: Report) -> str:
    """The section of a model card on the confidence: verdict, scores, thresholds, limits."""
    lines = [f"# {in_markdown(judged.title)}", ""]
    if judged.subtitle:
        lines += [in_markdown(judged.subtitle), ""]
    if judged.refit is not None:
        lines += [in_markdown(judged.refit.text), ""]
    lines += ["## Can the confidence be trusted?", ""]
    lines += [
        f"- **{in_markdown(m.name)}**: {JUDGEMENTS[m.judgement]}. {m.verdict.text}" for m in judged.methods
    ]
    lines += [
        "",
        "## Scores",
        "",
        "| method | accuracy | ECE | ECE expected by chance | log loss | Brier score |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for m in judged.methods:
        cells = [_interval(m.accuracy), _interval(m.ece)]
        cells += [f"{m.noise_floor.low:.4f} to {m.noise_floor.high:.4f}"]
        cells += [_interval(m.log_loss), _interval(m.brier_score)]
        lines.append(f"| {in_markdown(m.name)} | {' | '.join(cells)} |")
    lines += [
        "",
        f"In brackets: {100 * judged.level:g}% intervals. ECE expected by chance: 5% to 95% of the values that a "
        "perfectly calibrated model would show; an ECE in this range is no sign of miscalibration. Brier score: "
        f"{BRIER_CONVENTION}.",
        "",
    ]
    if judged.baseline is not None:
        coin = judged.baseline
        lines += [
            f"Always predicting the base rates of the classes would have an accuracy of {coin.accuracy:.4f}, a log "
            f"loss of {coin.log_loss:.4f} and a Brier score of {coin.brier_score:.4f}.",
            "",
        ]
    lines += [
        "## If the model may abstain",
        "",
        "| method | coverage | threshold | risk |",
    ]
    lines += ["|---|---|---|---|"]
    for m in judged.methods:
        lines += [f"| {in_markdown(m.name)} | {row} |" for row in _thresholds(m.reject, judged.rows)]
    lines += [
        "",
        "Coverage: fraction of rows that are answered. Risk: fraction of wrong predictions among them.",
    ]
    lines += _sets(judged)
    if judged.novelty is not None:
        lines += ["", "## Rows unlike the training data", "", judged.novelty.text]
    lines += ["", "## Data and settings", ""]
    facts = {
        "rows": f"{judged.rows:,}",
        "classes": f"{len(judged.classes):,}",
        "bins of the ECE": judged.n_bins,
        "selfcal": judged.selfcal,
        **judged.settings,
    }
    lines += [f"- {in_markdown(str(name))}: {in_markdown(str(value))}" for name, value in facts.items()]
    lines += [
        "",
        "## Limits",
        "",
        "These numbers hold for data like the rows evaluated here. They say nothing about data from another",
        "distribution, nor about groups of rows that were not evaluated separately.",
    ]
    return "\n".join(lines) + "\n"


def _sets(judged: Report) -> list[str]:
    """The section on prediction sets, if there are any."""
    if not any(m.sets for m in judged.methods):
        return []
    lines = [
        "",
        "## Prediction sets",
        "",
        "| method | promised coverage | coverage | mean size |",
        "|---|---|---|---|",
    ]
    for m in judged.methods:
        for s in m.sets:
            found = s.coverage
            lines.append(
                f"| {in_markdown(m.name)} | {s.promised:.0%} | {found.value:.2%} "
                f"[{found.low:.2%}, {found.high:.2%}] | {s.size.value:.2f} |"
            )
    return [*lines, "", "Chosen on one half of the rows, and measured on the other."]


def _interval(score: Estimate) -> str:
    value, low, high = ("?" if end is None else f"{end:.4f}" for end in (score.value, score.low, score.high))
    return f"{value} [{low}, {high}]"


def _thresholds(reject: RejectCurve, rows: int) -> list[str]:
    """The highest threshold on the grid that reaches each of the coverages, without repetition."""
    places = [
        max(place for place, count in enumerate(reject.accepted) if count >= coverage * rows)
        for coverage in COVERAGES
    ]
    return [
        f"{reject.accepted[place] / rows:.1%} | {reject.thresholds[place]:g} | "
        f"{reject.errors[place] / reject.accepted[place]:.2%} "
        f"[{reject.risk_low[place]:.2%}, {reject.risk_high[place]:.2%}]"
        for place in dict.fromkeys(places)
    ]
