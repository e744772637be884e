"""`selfcal calibrate`: mend the probabilities of a model that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfcal.commands._outputs import Force, check_file
from selfcal.commands._shared import (
    AsJson,
    DropUnlabelled,
    Encoding,
    Ragged,
    Sep,
    Target,
    note,
    print_json,
    say,
    words,
)
from selfcal.commands.evaluate import Columns, ProbPrefix
from selfcal.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from selfcal.workflows.recalibration import Recalibration


def calibrate(
    predictions: Annotated[
        str, typer.Argument(help="Labelled predictions to learn from; - is standard input.")
    ],
    *,
    target: Target,
    out: Annotated[str, typer.Option(help="A .csv, .tsv, .csv.gz or .parquet file; - is standard output.")],
    force: Force = False,
    calibrator: Annotated[str, typer.Option(help="temperature, vector, isotonic, beta, ...")] = "temperature",
    apply: Annotated[
        str | None, typer.Option(help="Predictions to mend. Default: the ones learned from.")
    ] = None,
    prob_prefix: ProbPrefix = None,
    columns: Columns = None,
    class_column: Annotated[str | None, typer.Option(help="The column with the chosen class.")] = None,
    confidence_column: Annotated[
        str | None, typer.Option(help="The column with the confidence in it.")
    ] = None,
    drop_unlabelled: DropUnlabelled = False,
    sep: Sep = None,
    encoding: Encoding = None,
    ragged: Ragged = False,
    as_json: AsJson = False,
) -> None:
    """Fit a post-hoc calibrator to somebody's predictions, say what it gains, and write mended predictions.

    The gain is measured on rows that the calibrator was not fitted on (five folds).

    Try:

      selfcal calibrate validation.csv --target y --apply new.csv --out calibrated.csv

      selfcal calibrate validation.csv --target y --calibrator isotonic --out calibrated.csv
    """
    from selfcal.tabular.io import read_batches, read_table, write_batches
    from selfcal.tabular.io.writing import separator_of
    from selfcal.workflows.evaluation import find_layout
    from selfcal.workflows.recalibration import Recalibration

    if as_json and out == "-":
        raise ConfigError("--json and --out - both want standard output; give --out a file.")
    separator_of(out)
    check_file("--out", out, inputs=[predictions, apply or predictions], force=force)
    reading: dict[str, Any] = {"sep": sep, "encoding": encoding, "ragged": ragged}
    table = read_table(predictions, **reading)
    layout = find_layout(
        table,
        target,
        prefix=prob_prefix,
        columns=None if columns is None else words("--columns", columns),
        choice=class_column,
        confidence=confidence_column,
    )
    note(layout.text)
    mended = Recalibration(layout, calibrator).fit(table, drop_unlabelled=drop_unlabelled)
    if apply is None:
        note("the calibrator has seen the labels of the rows it is applied to; judge it on others (--apply).")
        parts = iter([table])
    else:
        parts = read_batches(apply, allow_empty=True, **reading)
    if mended.stale(table):
        note("the column 'abstain' was decided by the old confidences and is left out; decide anew.")
    rows = write_batches(_applied(mended, parts), out)
    scores = {"before": mended.before.scores(), "after": mended.after.scores()}
    if as_json:
        gain = mended.gain
        print_json(
            {
                "calibrator": calibrator,
                "rows": rows,
                "out": out,
                **scores,
                "log_loss_difference": {
                    "value": gain.difference.value,
                    "low": gain.difference.low,
                    "high": gain.difference.high,
                },
            }
        )
        return
    for when, of_rows in scores.items():
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in of_rows.items())
        say(f"{when:<6}  {shown}", err=out == "-")
    say(f"After and before, {mended.gain}", err=out == "-")
    if mended.gain.difference.high >= 0:
        say(
            "This calibrator does not help here: keep the predictions as they are, or try another.",
            err=out == "-",
        )
    if out != "-":
        say(f"{rows:,} rows: {out}")


def _applied(mended: Recalibration, parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    start = 0
    for part in parts:
        yield mended.apply(part, start)
        start += part.height
