"""`selfcal evaluate`: what predictions are worth, whoever made them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfcal.commands._outputs import Force, check_page
from selfcal.commands._shared import (
    AsJson,
    DropUnlabelled,
    Encoding,
    Ragged,
    Sep,
    Target,
    note,
    print_json,
    read_showing,
    say,
    words,
)
from selfcal.errors import ConfigError

ProbPrefix = Annotated[
    str | None,
    typer.Option(help="What columns of probabilities begin with, before the class, such as prob_."),
]
Columns = Annotated[
    str | None,
    typer.Option(help="The columns of probabilities, separated by commas, if not named after classes."),
]


def evaluate(
    predictions: Annotated[
        str, typer.Argument(help="A CSV, TSV or Parquet file with the truth; - is standard input.")
    ],
    *,
    target: Target,
    prob_prefix: ProbPrefix = None,
    columns: Columns = None,
    class_column: Annotated[str | None, typer.Option(help="The column with the chosen class.")] = None,
    confidence_column: Annotated[
        str | None, typer.Option(help="The column with the confidence in it.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page here; ends in .html.")] = None,
    force: Force = False,
    bins: Annotated[int, typer.Option(min=1, help="Number of bins of the calibration error.")] = 15,
    drop_unlabelled: DropUnlabelled = False,
    sep: Sep = None,
    encoding: Encoding = None,
    ragged: Ragged = False,
    as_json: AsJson = False,
) -> None:
    """Judge predictions: columns of probabilities, or a class and a confidence, beside the true class.

    Files of any size are read part by part.

    Try:

      selfcal evaluate predictions.csv --target diagnosis

      selfcal evaluate theirs.parquet --target y --prob-prefix p_ --report theirs.html
    """
    from selfcal.commands._scores import ranges_text, scores_text, verdict_text
    from selfcal.reporting import report as write_report
    from selfcal.workflows.evaluation import judge_parts

    if report is not None:
        check_page("--report", report, inputs=[predictions], force=force)
    with read_showing("Judging", predictions, sep=sep, encoding=encoding, ragged=ragged) as parts:
        judge = judge_parts(
            parts,
            target,
            prefix=prob_prefix,
            columns=None if columns is None else words("--columns", columns),
            choice=class_column,
            confidence=confidence_column,
            drop_unlabelled=drop_unlabelled,
            n_bins=bins,
        )
    numbers = judge.result()
    notes = [judge.layout.text]
    if judge.unlabelled:
        notes.append(f"{judge.unlabelled:,} rows have no label in column {target!r} and are left out.")
    if report is not None:
        kept = judge.predictions
        if kept is None:
            raise ConfigError(
                f"--report needs all rows in memory, and {judge.rows:,} are too many. Leave it out."
            )
        write_report(
            {"predictions": kept}, report, classes=judge.names, n_bins=bins, settings={"file": predictions}
        )
    note(*notes)
    if as_json:
        print_json({"predictions": predictions, "target": target, "notes": notes, **numbers})
        return
    judged = numbers["methods"][0]
    say(verdict_text(judged))
    say(f"{numbers['rows']:,} rows, {len(judge.layout.classes) or 'unknown number of'} classes:")
    say(scores_text(judged, numbers["level"]))
    say()
    say(ranges_text(judged))
    if report is not None:
        say()
        say(f"Report: {report}")
