"""`selfcal report`: one page about the predictions of one or more models."""

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
    print_json,
    say,
    stem,
)
from selfcal.commands.evaluate import ProbPrefix
from selfcal.errors import ConfigError


def report(
    predictions: Annotated[
        list[str], typer.Argument(help="Files with predictions on the same rows, and the truth.")
    ],
    *,
    target: Target,
    out: Annotated[Path, typer.Option(help="Where to write the page; ends in .html.")],
    force: Force = False,
    title: Annotated[
        str, typer.Option(help="The heading of the page.")
    ] = "How far can these predictions be trusted?",
    prob_prefix: ProbPrefix = None,
    drop_unlabelled: DropUnlabelled = False,
    sep: Sep = None,
    encoding: Encoding = None,
    ragged: Ragged = False,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page, and its numbers beside it, about predictions of one or more models on the same rows.

    Try:

      selfcal report ours.csv theirs.csv --target diagnosis --out report.html
    """
    from selfcal.commands._scores import verdict_text
    from selfcal.reporting import report as write_report
    from selfcal.reporting import summarise
    from selfcal.tabular.io import read_batches
    from selfcal.workflows.evaluation import judge_parts

    check_page("--out", out, inputs=predictions, force=force)
    judged, classes = {}, None
    for source in predictions:
        parts = read_batches(source, sep=sep, encoding=encoding, ragged=ragged)
        judge = judge_parts(parts, target, prefix=prob_prefix, drop_unlabelled=drop_unlabelled)
        if judge.predictions is None:
            raise ConfigError(
                f"A page needs all rows in memory, and {source} has too many: use selfcal evaluate."
            )
        if classes is not None and classes.tolist() != judge.names.tolist():
            raise ConfigError(f"All files must have the same classes in the same order; {source} has others.")
        classes = judge.names
        name = stem(source)
        judged[source if name in judged else name] = judge.predictions
    page = write_report(judged, out, title=title, classes=classes)
    numbers = summarise(judged, classes=classes)
    if as_json:
        print_json({"report": str(page), **numbers})
        return
    for method in numbers["methods"]:
        say(f"{method['name']}: {verdict_text(method).removeprefix('Verdict: ')}")
    say(f"Report: {page}")
