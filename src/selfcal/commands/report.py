"""`selfcal report`: one page about the predictions of one or more models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from selfcal.commands._options import By, PredictionOptions, Target, TextOptions, grouped
from selfcal.commands._outputs import Force, check_page, made_by_command
from selfcal.commands._shared import AsJson, note, print_json, say, stem
from selfcal.errors import ConfigError


@grouped
def report(
    predictions: Annotated[
        list[str], typer.Argument(help="Files with predictions on the same rows, and the true classes.")
    ],
    *,
    target: Target,
    out: Annotated[Path, typer.Option(help="The file of the page, which ends in .html.")],
    force: Force = False,
    title: Annotated[
        str, typer.Option(help="The heading of the page.")
    ] = "How far can these predictions be trusted?",
    by: By = None,
    where: PredictionOptions,
    text: TextOptions,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page, with its numbers as JSON, about predictions of one or more models on the same rows.

    Try:

      selfcal report ours.csv theirs.csv --target diagnosis --out report.html
    """
    from selfcal.commands._scores import verdict_text
    from selfcal.reporting.page import write_page
    from selfcal.reporting.summarise import summarise
    from selfcal.tabular.io import check_source, read_batches
    from selfcal.workflows.evaluation import judge_parts

    reading, columns = text.reading(), where.layout()
    for source in predictions:
        check_source(source)
    check_page("--out", out, inputs=predictions, force=force)
    judged, classes, of_classes = {}, None, True
    groups: dict[str, Any] = {}
    for source in predictions:
        parts = read_batches(source, **reading)
        judge = judge_parts(parts, target, **columns, drop_unlabelled=where.drop_unlabelled, by=by or ())
        if judge.predictions is None:
            raise ConfigError(
                f"A page needs all rows in memory, and {source} has too many: use selfcal evaluate."
            )
        if classes is not None and classes.tolist() != judge.names.tolist():
            raise ConfigError(f"All files must have the same classes in the same order; {source} has others.")
        note(f"{source}: {judge.layout.text}")
        classes, of_classes, groups = judge.names, judge.of_classes, groups or judge.groups
        name = stem(source)
        judged[source if name in judged else name] = judge.predictions
    reported = summarise(
        judged,
        title=title,
        classes=classes,
        groups=groups,
        of_classes=of_classes,
        provenance=made_by_command(predictions),
    )
    page = write_page(reported, out)
    if as_json:
        print_json({"report": str(page), **reported.to_dict()})
        return
    for method in reported.methods:
        say(f"{method.name}: {verdict_text(method).removeprefix('Verdict: ')}")
        for grouped_by in method.by_group:
            say(f"  {grouped_by.text}")
    say(f"Report: {page}")
