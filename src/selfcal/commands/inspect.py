"""`selfcal inspect`: the content of a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from selfcal.commands._shared import AsJson, print_json, say, schema_text

SHOWN = 12


def inspect(
    model: Annotated[Path, typer.Argument(help="The folder that selfcal fit wrote.")],
    *,
    all_columns: Annotated[
        bool, typer.Option("--all", metavar="", help="Show every column and class, however many.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the training data of a model, the columns it expects, and its scores on held-out rows.

    Try:

      selfcal inspect patients-model
    """
    from selfcal._support.checks import shorten
    from selfcal.commands._scores import say_verdict, scores_text
    from selfcal.reporting._names import counted
    from selfcal.workflows.inspection import Inspected, tried

    stored = Inspected.read(model)
    description = stored.description
    if as_json:
        print_json(
            {
                "model": str(model),
                "description": description,
                "schema": stored.schema.to_dict(),
                "notes": stored.notes,
                "report_numbers": None if stored.report is None else stored.report.to_dict(),
            }
        )
        return
    most = len(stored.classes) if all_columns else SHOWN
    classes = ", ".join(map(shorten, stored.classes[:most])) + (", ..." if len(stored.classes) > most else "")
    files = {name: seal["bytes"] for name, seal in description["files"].items()}
    facts = {
        "target": shorten(stored.schema.target or "not named: fitted from Python"),
        "classes": f"{len(stored.classes):,}: {classes}",
        "method": shorten(description["settings"]["method"], 500),
        "network": f"{counted(description['features']['count'], 'input')}, {_summary(model, description)}",
        **tried(description["selection"] or ()),
        "steps": f"{description['training']['steps']:,}, best after {description['training']['kept_step']:,}",
        "written by": f"selfcal {description['selfcal_version']}, format {description['format_version']}",
        "size": f"{sum(files.values()):,} bytes in {len(files) + 1} files",
        "training rows": f"{description['data']['rows']:,}, SHA-256 {description['data']['fingerprint'][:16]}...",
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        say(f"{name.ljust(width)}  {value}", indent=width + 2)
    say()
    say(schema_text(stored.schema, len(stored.schema.columns) if all_columns else 40), table=True)
    say()
    if stored.report is None:
        say(
            "Not evaluated: it was fitted from Python, without held-out rows. Predict labelled rows with selfcal "
            "predict, and pass the result to selfcal evaluate."
        )
    else:
        judged = stored.report.methods[0]
        say_verdict(judged)
        say(f"Evaluated on {counted(stored.report.rows, 'held-out row')}:")
        say(scores_text(judged, stored.report.level, stored.report.baseline), table=True)
        if stored.report.refit is not None:
            say()
            say(stored.report.refit.text)
    if stored.notes:
        say()
        say("\n".join(f"note: {text}" for text in stored.notes))


def _summary(model: Path, description: Mapping[str, Any]) -> str:
    """What predicts, in a few words; models of selfcal 0.1.0 must be loaded to know."""
    from selfcal._support.checks import shorten

    if "summary" in description:
        return shorten(str(description["summary"]), 500)
    from selfcal.estimators.classifier import SelfCalibratedClassifier
    from selfcal.models.spec import summary_of

    return summary_of(SelfCalibratedClassifier.load(model).module_)
