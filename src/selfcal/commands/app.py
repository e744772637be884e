"""The command line: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from selfcal import __version__
from selfcal._support.signals import run_command
from selfcal.commands._command import Command
from selfcal.commands._options import CORES, Jobs, Progress
from selfcal.commands._outputs import Force, check_results_folder, results_folder
from selfcal.commands._shared import say, warnings_as_notes
from selfcal.commands.calibrate import calibrate
from selfcal.commands.compare import compare, tune
from selfcal.commands.doctor import doctor
from selfcal.commands.evaluate import evaluate
from selfcal.commands.export import export
from selfcal.commands.fit import fit
from selfcal.commands.inspect import inspect
from selfcal.commands.predict import predict
from selfcal.commands.report import report
from selfcal.errors import Interrupted, SelfcalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selfcal.experiments.demo import Shown


class _Commands(TyperGroup):
    """Turns our own errors into one line and an exit code; anything else is a bug and keeps its traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept --debug anywhere: after an error, it is easiest to append it to the previous command."""
        others = [word for word in args if word != "--debug"]
        return super().parse_args(ctx, ["--debug"] * (len(others) < len(args)) + others)

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings_as_notes():
                return super().invoke(ctx)
        except SelfcalError as error:
            if ctx.params.get("debug"):
                raise
            text = str(error) if isinstance(error, Interrupted) else f"error: {error}"
            say(text, err=True, mark="error:", colour="red")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            say("Stopped by SIGINT.", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    help="Train neural-network classifiers whose confidence means what it says.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(
    help="Run a paper's experiments and write its tables and figures.", no_args_is_help=True
)
for command in (fit, predict, evaluate, calibrate, compare, tune, report, inspect, export, doctor):
    app.command(cls=Command)(command)
app.add_typer(reproduce, name="reproduce")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_show_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command(cls=Command)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("selfcal-demo"),
    force: Force = False,
) -> None:
    """Train the default method and simpler ones on two data sets, compare them, and write two report pages.

    Try:

      selfcal demo --out demo
    """
    check_results_folder(out, results=None, force=force)
    from selfcal.experiments.demo import REFERENCE, run_demo  # imports torch, so the check comes first

    shown = run_demo(out)
    for one in shown:
        _print_scores(one)
        typer.echo()
    say(
        f"chance: the ECE of a calibrated model with the same confidences. difference: in log loss from {REFERENCE}, "
        "on the same rows, with the half-width of its 95% interval.\n"
    )
    for one in shown:
        typer.echo(f"Report: {one.page}")


@reproduce.command("bo4sc", cls=Command)
def reproduce_bo4sc(
    out: Annotated[Path, typer.Option(help="Folder for the results; finished rows there are not run again.")],
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 10,
    datasets: Annotated[
        str | None,
        typer.Option(help="Names of data sets, separated by commas, e.g. blobs-1.7,bac. Default: all."),
    ] = None,
    jobs: Jobs = CORES,
    progress: Progress = False,
) -> None:
    """Table 1 and the three figures of the BO4SC paper, with added baselines and reference values."""
    check_results_folder(out)
    from selfcal.experiments import bo4sc  # imports torch, so the check comes first

    only = [name.strip() for name in datasets.split(",")] if datasets else None
    with results_folder(out):
        bo4sc.reproduce(out, seeds=seeds, only=only, jobs=jobs, progress=progress or None)
    typer.echo((out / "table.md").read_text())
    typer.echo(f"Written: {out}/results.json, table.md, reports and the figures")


Out = Annotated[Path, typer.Option(help="Folder for the results; finished rows there are not run again.")]
DataDir = Annotated[Path, typer.Option(help="Folder with the image files; nothing is downloaded.")]
ProfileName = Annotated[
    str,
    typer.Option(
        "--profile",
        help="small: two cores, under 40 minutes. narrow: thousands of outer steps (meta-regularization). "
        "paper: the full setting, on a GPU.",
    ),
]
Images = Annotated[
    str | None, typer.Option("--dataset", help="Other images, such as cifar10-small or cifar100.")
]
Seeds = Annotated[
    int | None, typer.Option("--seeds", min=1, help="Number of seeds. Default: that of the profile.")
]
LongRun = Annotated[
    bool, typer.Option("--long-run", metavar="", help="Start the full setting even without a GPU.")
]


def _image_command(paper: str, summary: str) -> None:
    @reproduce.command(paper, cls=Command, help=summary)
    def command(
        *,
        out: Out,
        data_dir: DataDir,
        profile: ProfileName = "small",
        dataset: Images = None,
        seeds: Seeds = None,
        jobs: Jobs = CORES,
        long_run: LongRun = False,
        progress: Progress = False,
    ) -> None:
        check_results_folder(out)
        from selfcal.experiments import images  # imports torch, so the check comes first

        size = images.profile_of(paper, profile, dataset=dataset, seeds=seeds)
        with results_folder(out):
            typer.echo(images.announce(paper, size, data_dir, long_run=long_run))
            images.reproduce(paper, size, data_dir, out, jobs=jobs, progress=progress or None)
        typer.echo((out / "table.md").read_text())
        typer.echo(f"Written: {out}/results.json, table.md, reports and the figures")


_image_command(
    "meta-regularization",
    "Tables and figures of the meta-regularisation paper: γ-Net, SECE and ten baselines.",
)
_image_command("loss-functions", "ECE by epoch of four losses on three networks.")


def _print_scores(shown: Shown) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from selfcal.experiments.demo import noise_floor

    table = Table(title=shown.title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("method")
    for name in ("accuracy", "ECE", "chance", "log loss", "difference"):
        table.add_column(name, justify="right")
    for label, judged in shown.predictions.items():
        scores = judged.scores()
        row = [scores["accuracy"], scores["ece"], noise_floor(judged), scores["log_loss"]]
        away = shown.differences.get(label)
        difference = f"{away.value:+.4f} ± {(away.high - away.low) / 2:.4f}" if away else ""
        table.add_row(Text(label), *(f"{value:.4f}" for value in row), Text(difference))
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `selfcal` command."""
    run_command(lambda: app(arguments))
