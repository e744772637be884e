"""`selfcal evaluate`: scores and calibration of predictions of any model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfcal.commands._options import By, PredictionOptions, Progress, Target, TextOptions, grouped
from selfcal.commands._outputs import Force, check_page, made_by_command
from selfcal.commands._shared import AsJson, note, print_json, read_showing, say
from selfcal.errors import ConfigError


@grouped
def evaluate(
    predictions: Annotated[
        str,
        typer.Argument(
            help="A table, in a file as for fit, that also has the true classes; - is standard input."
        ),
    ],
    *,
    target: Target,
    by: By = None,
    where: PredictionOptions,
    report: Annotated[
        Path | None, typer.Option(help="Write a report page to this file, which ends in .html.")
    ] = None,
    force: Force = False,
    bins: Annotated[int, typer.Option(min=1, help="Number of bins of the calibration error.")] = 15,
    text: TextOptions,
    progress: Progress = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate predictions: columns of probabilities, or a class and a confidence, beside the true class.

    Files of any size are read part by part.

    Try:

      selfcal evaluate predictions.csv --target diagnosis

      selfcal evaluate predictions.csv --target diagnosis --by age --by site

      selfcal evaluate theirs.parquet --target y --prob-prefix p_ --report theirs.html

      selfcal evaluate theirs.csv --target y --positive yes --confidence-column score
    """
    from selfcal.commands._scores import groups_text, ranges_text, say_verdict, scores_text
    from selfcal.reporting._names import counted
    from selfcal.reporting.content import Report
    from selfcal.reporting.page import write_page
    from selfcal.workflows.evaluation import judge_parts

    if report is not None:
        check_page("--report", report, inputs=[predictions], force=force)
    with read_showing("Evaluating", predictions, show=progress or None, **text.reading()) as parts:
        judge = judge_parts(
            parts, target, **where.layout(), drop_unlabelled=where.drop_unlabelled, n_bins=bins, by=by or ()
        )
    judged = judge.result(provenance=made_by_command([predictions]))
    notes = [judge.layout.text]
    if judge.unlabelled:
        dropped = counted(judge.unlabelled, "row")
        notes.append(f"{dropped} without a label in column {target!r} left out.")
    if report is not None:
        if not isinstance(judged, Report):
            raise ConfigError(
                f"--report needs all rows in memory, and {judged.rows:,} are too many. Leave it out."
            )
        write_page(judged, report)
    note(*notes)
    if as_json:
        print_json({"predictions": predictions, "target": target, "notes": notes, **judged.to_dict()})
        return
    scores = judged.methods[0]
    say_verdict(scores)
    classes = len(judge.layout.classes)
    known = counted(classes, "class", "classes") if classes else "unknown number of classes"
    say(f"{counted(judged.rows, 'row')}, {known}:")
    baseline = judged.baseline if isinstance(judged, Report) else None
    say(scores_text(scores, judged.level, baseline), table=True)
    say()
    say(ranges_text(scores), table=True)
    if isinstance(judged, Report) and judged.methods[0].by_group:
        say(groups_text(judged.methods[0]), table=True)
    if report is not None:
        say()
        say(f"Report: {report}")
