"""`selfcal export`: a model as ONNX, for programs without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfcal.commands._outputs import Force, check_file
from selfcal.commands._shared import AsJson, print_json, say

SHOWN = 12


def export(
    model: Annotated[Path, typer.Argument(help="The folder that selfcal fit wrote.")],
    *,
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.")],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as one ONNX graph: from numbers to calibrated probabilities.

    Scaling, missing numbers (NaN), network and calibrator are in the graph. Parsing text is not: pass a category
    as its index in the list that is printed and stored in the file, or as -1 if it is not in the list.

    Try:

      selfcal export patients-model --onnx patients.onnx
    """
    from selfcal.reporting._names import counted
    from selfcal.storage.files import model_files

    check_file("--onnx", onnx, inputs=model_files(model), force=force)
    from selfcal.storage.export import to_onnx  # imports torch, so the checks above come first
    from selfcal.workflows.table_model import TableModel

    loaded = TableModel.load(model)
    inputs = loaded.preprocessor.inputs
    to_onnx(loaded.classifier, onnx)
    size = onnx.stat().st_size
    if as_json:
        print_json(
            {
                "model": str(model),
                "onnx": str(onnx),
                "bytes": size,
                "inputs": inputs,
                "classes": loaded.classes,
            }
        )
        return
    say(
        f"X: float64, one row per sample, {counted(len(inputs), 'column')}; NaN for a missing number, -1 for an "
        "unknown category"
    )
    for place, column in enumerate(inputs[:SHOWN]):
        levels = [f"{code} = {level}" for code, level in enumerate(column.get("categories", ()))]
        shown = ": " + ", ".join([*levels[:SHOWN], *["..."] * (len(levels) > SHOWN)]) if levels else ""
        say(f"  {place}  {column['name']}{shown}")
    if len(inputs) > SHOWN:
        say(f"  ... and {len(inputs) - SHOWN:,} more, listed in the metadata of the file")
    names = ", ".join([*loaded.classes[:SHOWN], *["..."] * (len(loaded.classes) > SHOWN)])
    say(f"probabilities: one column for each class: {names}")
    say(f"{size:,} bytes: {onnx}")
