"""`selfcal calibrate`: recalibrate the predictions of any model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from selfcal.commands._options import PredictionOptions, Target, TextOptions, grouped
from selfcal.commands._outputs import Force, check_file
from selfcal.commands._shared import AsJson, note, print_json, say, warn
from selfcal.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from selfcal.metrics import Comparison
    from selfcal.workflows.recalibration import Recalibration


@grouped
def calibrate(
    predictions: Annotated[
        str, typer.Argument(help="Labelled predictions to fit the calibrator on; - is standard input.")
    ],
    *,
    target: Target,
    out: Annotated[str, typer.Option(help="A .csv, .tsv, .csv.gz or .parquet file; - is standard output.")],
    force: Force = False,
    calibrator: Annotated[str, typer.Option(help="temperature, vector, isotonic, beta, ...")] = "temperature",
    apply: Annotated[
        str | None, typer.Option(help="Predictions to recalibrate. Default: those it is fitted on.")
    ] = None,
    where: PredictionOptions,
    text: TextOptions,
    as_json: AsJson = False,
) -> None:
    """Fit a post-hoc calibrator to predictions, measure what it gains, and write recalibrated predictions.

    The gain is measured on held-out rows (five-fold cross-validation).

    Try:

      selfcal calibrate validation.csv --target y --apply new.csv --out calibrated.csv

      selfcal calibrate validation.csv --target y --calibrator isotonic --out calibrated.csv
    """
    from selfcal._support.checks import one_of
    from selfcal._support.method_names import CALIBRATORS
    from selfcal.tabular.io import check_source, read_batches, read_table, write_batches
    from selfcal.tabular.io.writing import separator_of

    if as_json and out == "-":
        raise ConfigError("--json and --out - cannot both write to standard output. Pass a file to --out.")
    one_of("--calibrator", calibrator, CALIBRATORS)
    separator_of(out)
    reading, columns = text.reading(), where.layout()
    sources = [predictions] if apply is None else [predictions, apply]
    for source in sources:
        check_source(source)
    check_file("--out", out, inputs=sources, force=force)
    from selfcal.commands._scores import short_name
    from selfcal.reporting._names import counted
    from selfcal.workflows.layout_search import find_layout
    from selfcal.workflows.recalibration import Recalibration

    table = read_table(predictions, **reading)
    layout = find_layout(table, target, **columns)
    note(layout.text)
    recalibration = Recalibration(layout, calibrator).fit(table, drop_unlabelled=where.drop_unlabelled)
    gain = recalibration.gain
    worse = not gain.difference.value < 0
    if worse:
        warn(
            f"The calibrated predictions are not better: in cross-validation their log loss is {gain.a:.4f}, and "
            f"{gain.b:.4f} as they are. The output may be worse than the input."
        )
    if apply is None:
        note("The calibrator is applied to the rows it was fitted on; evaluate it on other rows (--apply).")
        parts = iter([table])
    else:
        parts = read_batches(apply, allow_empty=True, **reading)
    for name in recalibration.stale(table):
        note(f"The column {name!r} was computed from the old probabilities and is dropped.")
    rows = write_batches(_applied(recalibration, parts), out)
    scores = {"before": recalibration.before.scores(), "after": recalibration.after.scores()}
    if as_json:
        print_json(
            {
                "calibrator": calibrator,
                "rows": rows,
                "out": out,
                "notes": [layout.text],
                "better": not worse,
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
        shown = ", ".join(f"{short_name(name)} {value:.4f}" for name, value in of_rows.items())
        say(f"{when:<6}  {shown}", err=out == "-")
    say("The Brier score is summed over the classes: 0 to 2.", err=out == "-")
    say(_change(gain), err=out == "-")
    if gain.difference.high >= 0:
        say(
            "No significant gain: keep the predictions as they are, or try another calibrator.",
            err=out == "-",
        )
    if out != "-":
        say(f"{counted(rows, 'row')}: {out}")


def _change(gain: Comparison) -> str:
    """One line on the change of the log loss."""
    fell = "rose" if gain.difference.value > 0 else "fell"
    remark = ", no significant difference" if 0 in gain.difference else ""
    return (
        f"Log loss {fell} from {gain.b:.4f} to {gain.a:.4f} on {gain.n:,} rows in cross-validation: difference "
        f"{gain.difference.value:+.4f} [{gain.difference.low:+.4f}, {gain.difference.high:+.4f}] "
        f"({gain.difference.level:.0%} interval), p = {gain.p_value:.2g}{remark}."
    )


def _applied(recalibration: Recalibration, parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    start = 0
    for part in parts:
        yield recalibration.apply(part, start)
        start += part.height
