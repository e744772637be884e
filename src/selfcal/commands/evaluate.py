"""`selfcal evaluate`: scores and calibration of predictions of any model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfcal.commands._options import By, PredictionOptions, Progress, Target, TextOptions, grouped
from selfcal.commands._outputs import Force, check_page, made_by_command
from selfcal.commands._shared import AsJson, note, print_json, read_showing, say, warn
from selfcal.errors import ConfigError

if TYPE_CHECKING:
    from selfcal.conformal import SetScores
    from selfcal.reporting.content import Report, ScoreReport
    from selfcal.workflows.evaluation import Judge
    from selfcal.workflows.parts import EvaluatedParts
    from selfcal.workflows.sums import Sums


@grouped
def evaluate(
    predictions: Annotated[
        list[str],
        typer.Argument(
            help="A table, in a file as for fit, that also has the true classes (- is standard input), several of "
            "them, a folder, or a pattern such as 'part-*.parquet'."
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
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes for several files.")] = 1,
    sums: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the sums of every file in this folder: files with sums there are not read again.",
        ),
    ] = None,
    skip_corrupt: Annotated[
        bool,
        typer.Option(
            "--skip-corrupt", metavar="", help="Leave out files that cannot be used, instead of an error."
        ),
    ] = False,
    text: TextOptions,
    progress: Progress = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate predictions: columns of probabilities, or a class and a confidence, beside the true class.

    Files of any size are read part by part. Several files are evaluated as one table; --sums makes that resumable.

    Try:

      selfcal evaluate predictions.csv --target diagnosis

      selfcal evaluate predictions.csv --target diagnosis --by age --by site

      selfcal evaluate theirs.parquet --target y --prob-prefix p_ --report theirs.html

      selfcal evaluate theirs.csv --target y --positive yes --confidence-column score

      selfcal evaluate 'parts/part-*.parquet' --target y --jobs 4 --sums sums
    """
    from selfcal.reporting._names import counted
    from selfcal.reporting.content import Report
    from selfcal.reporting.page import write_page
    from selfcal.workflows.evaluation import judge_parts
    from selfcal.workflows.parts import several

    if report is not None:
        check_page("--report", report, inputs=predictions, force=force)
    judge: Judge | Sums
    details: dict[str, Any] = {}
    sets: SetScores | None = None
    options = {**where.layout(), "drop_unlabelled": where.drop_unlabelled, "n_bins": bins}
    provenance = made_by_command(predictions)
    if several(predictions) or sums is not None or skip_corrupt:
        if by:
            raise ConfigError(
                "--by needs the rows of one file in memory, not sums. Leave it out, or pass one file."
            )
        found = _evaluate_parts(
            predictions,
            target,
            jobs=jobs,
            folder=sums,
            skip_corrupt=skip_corrupt,
            progress=progress,
            reading=text.reading(),
            **options,
        )
        judge = found.sums
        details["files"] = {"found": found.parts, "reused": found.reused, "skipped": list(found.skipped)}
        judged: Report | ScoreReport = judge.report(settings=found.facts(predictions), provenance=provenance)
    else:
        with read_showing("Evaluating", predictions[0], show=progress or None, **text.reading()) as parts:
            judge = judge_parts(parts, target, **options, by=by or ())
        judged = judge.result(provenance=provenance)
        sets = judge.sets
        details |= {} if sets is None else {"prediction_sets": asdict(sets)}
    notes = [judge.layout.text]
    if judge.unlabelled:
        dropped = counted(judge.unlabelled, "row")
        notes.append(f"{dropped} without a label in column {target!r} left out.")
    if report is not None:
        if not isinstance(judged, Report):
            raise ConfigError(
                f"--report needs all rows in memory, and {judged.rows:,} are too many. Add --sums FOLDER, "
                "which makes a page from sums."
            )
        write_page(judged, report)
    note(*notes)
    if as_json:
        source = predictions[0] if len(predictions) == 1 else predictions
        print_json({"predictions": source, "target": target, "notes": notes, **details, **judged.to_dict()})
        return
    _say_scores(judged, len(judge.layout.classes), sets)
    if report is not None:
        say()
        say(f"Report: {report}")


def _say_scores(judged: Report | ScoreReport, classes: int, sets: SetScores | None) -> None:
    from selfcal.commands._scores import groups_text, ranges_text, say_verdict, scores_text
    from selfcal.reporting._names import counted
    from selfcal.reporting.content import Report

    scores = judged.methods[0]
    say_verdict(scores)
    known = counted(classes, "class", "classes") if classes else "unknown number of classes"
    say(f"{counted(judged.rows, 'row')}, {known}:")
    baseline = judged.baseline if isinstance(judged, Report) else None
    say(scores_text(scores, judged.level, baseline), table=True)
    say()
    say(ranges_text(scores), table=True)
    if isinstance(judged, Report) and judged.methods[0].by_group:
        say(groups_text(judged.methods[0]), table=True)
    if sets is not None:
        say()
        say(f"Prediction sets, with intervals of 95%: {sets}.")


def _evaluate_parts(predictions: list[str], target: str, *, progress: bool, **options: Any) -> EvaluatedParts:
    """Evaluate several files, with a progress bar, and name those that were left out."""
    from selfcal._support.progress import progress_bar
    from selfcal.workflows.parts import evaluate_parts, find_parts

    paths = find_parts(predictions)
    with progress_bar("Evaluating", len(paths), show=progress or None) as advance:
        found = evaluate_parts(
            paths, target, watch=lambda done, rows: advance(done, f"files, {rows:,} rows"), **options
        )
    for reason in found.skipped:
        warn(f"left out: {reason}")
    if found.reused:
        note(f"{found.reused} of {found.parts} files not read again: their sums were kept.")
    return found
