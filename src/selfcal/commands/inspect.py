"""`selfcal inspect`: the content of a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    from selfcal.storage.files import model_files, read

    model_files(model)
    from selfcal.commands._scores import (
        scores_text,
        verdict_text,
    )  # these import torch, so the check comes first
    from selfcal.models.spec import summary_of
    from selfcal.reporting._names import counted
    from selfcal.workflows.table_model import TableModel
    from selfcal.workflows.table_report import tried

    loaded = TableModel.load(model)
    description, _ = read(model)
    if as_json:
        print_json(
            {
                "model": str(model),
                "description": description,
                "schema": loaded.schema.to_dict(),
                "notes": loaded.notes,
                "report_numbers": loaded.report.to_dict(),
            }
        )
        return
    most = len(loaded.classes) if all_columns else SHOWN
    classes = ", ".join(map(shorten, loaded.classes[:most])) + (", ..." if len(loaded.classes) > most else "")
    files = {name: seal["bytes"] for name, seal in description["files"].items()}
    facts = {
        "target": shorten(loaded.schema.target or ""),
        "classes": f"{len(loaded.classes):,}: {classes}",
        "method": shorten(description["settings"]["method"], 500),
        "network": f"{counted(loaded.classifier.n_features_in_, 'input')}, {summary_of(loaded.classifier.module_)}",
        **tried(loaded.classifier),
        "steps": f"{description['training']['steps']:,}, best after {description['training']['kept_step']:,}",
        "written by": f"selfcal {description['selfcal_version']}, format {description['format_version']}",
        "size": f"{sum(files.values()):,} bytes in {len(files) + 1} files",
        "training rows": f"{description['data']['rows']:,}, SHA-256 {description['data']['fingerprint'][:16]}...",
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        say(f"{name.ljust(width)}  {value}")
    say()
    say(schema_text(loaded.schema, len(loaded.schema.columns) if all_columns else 40))
    say()
    judged = loaded.report.methods[0]
    say(verdict_text(judged))
    say(f"Evaluated on {counted(loaded.report.rows, 'held-out row')}:")
    say(scores_text(judged, loaded.report.level, loaded.report.baseline))
    if loaded.report.refit is not None:
        say()
        say(loaded.report.refit.text)
    if loaded.notes:
        say()
        say("\n".join(f"note: {text}" for text in loaded.notes))
