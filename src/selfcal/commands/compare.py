"""`selfcal compare` and `selfcal tune`: several candidates on the same splits of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfcal._support.method_names import METHODS
from selfcal.commands._options import (
    CORES,
    Jobs,
    MaxEpochs,
    Progress,
    TableOptions,
    Target,
    TextOptions,
    TimeBudget,
    grouped,
)
from selfcal.commands._outputs import Force, check_model_folder, check_results_folder, results_folder
from selfcal.commands._shared import (
    AsJson,
    columns_text,
    note,
    pairs,
    print_json,
    say,
    stem,
    words,
)
from selfcal.errors import ConfigError

if TYPE_CHECKING:
    from selfcal.workflows.comparison import Candidate, Standing, Task
    from selfcal.workflows.shared_search import SharedSearch
    from selfcal.workflows.table_model import TableModel

Data = Annotated[str, typer.Argument(help="A CSV, TSV, JSON lines, Parquet, Arrow or Excel file.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds; each has its own split and training.")]
SEARCH = {"method": "auto,crossfit,temperature"}
"""The search without an option: the most accurate method, five networks of one kind, and a single network."""
GRID = {"learning_rate": "0.002,0.005,0.015", "hidden": "64x64,256x256"}
"""The search for a given method."""
METHOD = "auto"
"""The method whose settings are searched if none is given."""
RATES, WIDTHS = (0.001, 0.03), "64,64x64,128x128,256x256"
"""The learning rates and widths of layers from which a search with a study draws; all methods have them."""
TRIALS = 40
"""The number of settings that it draws."""


@grouped
def compare(
    data: Data,
    *,
    target: Target,
    methods: Annotated[
        str, typer.Option(help="Methods to compare, separated by commas.")
    ] = "auto,bo4sc,temperature",
    seeds: Seeds = 5,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; finished trials are not run again.")
    ] = None,
    force: Force = False,
    columns: TableOptions,
    text: TextOptions,
    max_epochs: MaxEpochs = None,
    time_budget: TimeBudget = None,
    jobs: Jobs = CORES,
    progress: Progress = False,
    as_json: AsJson = False,
) -> None:
    """Train methods on the same splits of a table and compare them, with intervals and the ECE expected by chance.

    Try:

      selfcal compare patients.csv --target diagnosis --methods bo4sc,standard,focal --seeds 10
    """
    from selfcal._support.checks import one_of

    names = list(dict.fromkeys(words("--methods", methods)))
    for name in names:
        one_of("--methods", name, METHODS)
    folder = Path(f"{stem(data)}-comparison") if out is None else out
    reading, fitting = text.reading(), columns.fitting()
    settings = _settings(max_epochs, time_budget)
    _check_file(data)
    check_results_folder(folder)
    from selfcal.workflows.comparison import (  # imports torch, so the checks above come first
        Candidate,
        Task,
        run_trials,
        standings,
    )

    task = Task(data, target, reading=reading, fitting=fitting, settings=settings)
    candidates = [Candidate(name, name) for name in names]
    with results_folder(folder):
        _try_reading(task)
        rows = run_trials(
            task,
            candidates,
            seeds=seeds,
            results=folder / "results.json",
            replace=force,
            jobs=jobs,
            title="Comparing",
            progress=progress or None,
        )
    _show(standings(rows), folder / "results.json", as_json, seeds)


@grouped
def tune(
    data: Data,
    *,
    target: Target,
    method: Annotated[
        str | None,
        typer.Option(help="The training method whose settings are tuned. Default: auto with --grid."),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="NAME=A,B,C",
            help="Values of a setting to try, such as hidden=64x64,256; may be repeated. Default: "
            f"method={SEARCH['method']}; with --method, {' and '.join(f'{n}={v}' for n, v in GRID.items())}.",
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="FILE_OR_URL",
            help="Share the trials with every process that runs the same command: a journal on a shared disk, or a "
            "database such as postgresql://user@host/name. Default search, without --grid: learning_rate "
            f"from {RATES[0]:g} to {RATES[1]:g} (log-uniform) and hidden={WIDTHS}; without --method also "
            f"method={SEARCH['method']}.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help=f"Settings to draw from the search of --study. Default: {TRIALS}."),
    ] = None,
    seeds: Seeds = 2,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the model and the results; finished trials are not run again."),
    ] = None,
    force: Force = False,
    columns: TableOptions,
    text: TextOptions,
    max_epochs: MaxEpochs = None,
    time_budget: TimeBudget = None,
    jobs: Jobs = CORES,
    progress: Progress = False,
    as_json: AsJson = False,
) -> None:
    """Search a grid of settings, train with the best, and evaluate the model on rows held out from the search.

    Without --method and --grid, three methods are tried: auto, crossfit and temperature.

    With --study, settings are drawn at random, and the worse half is dropped after 1, 2, 4, ... seeds.

    Try:

      selfcal tune patients.csv --target diagnosis --grid learning_rate=0.002,0.01 --grid hidden=64x64,256
    """
    from selfcal._support.checks import one_of
    from selfcal.commands.fit import CHECKPOINT, saving, show_model

    if trials is not None and study is None:
        raise ConfigError(
            "--trials needs --study; without one, every combination of --grid is tried. Add --study."
        )
    given = pairs("--grid", over, example="learning_rate=0.002,0.01")
    usual = SEARCH if method is None else GRID if study is None else {}
    method = METHOD if method is None else one_of("--method", method, METHODS)
    options = {name: _values(name, values) for name, values in (given or usual).items()}
    folder = Path(f"{stem(data)}-tuned") if out is None else out
    reading, fitting = text.reading(), columns.fitting()
    settings = _settings(max_epochs, time_budget)
    _check_file(data)
    if study is None:
        check_model_folder(folder / "model", force=force)
    check_results_folder(folder)
    from selfcal.commands._study import search_together  # imports torch, as those below
    from selfcal.tabular.io import read_table
    from selfcal.workflows.comparison import Task, grid
    from selfcal.workflows.table_model import TableModel

    task = Task(
        data,
        target,
        reading=reading,
        fitting=fitting,
        settings=settings,
        method=method,
        within=0,
    )

    def trained(name: str) -> TableModel:
        best = next(c for c in candidates if c.name == name)
        again = "Run the same command again to continue"
        with saving(folder / "model", force=force, again=again) as (training, _):
            settings = {"verbose": progress or None, "checkpoint_dir": training / CHECKPOINT, **task.settings}
            model = TableModel(best.method, seed=0, **{**settings, **best.settings})
            model.fit(read_table(data, **task.reading), target, **task.fitting)
            model.save(folder / "model")
        return model

    if study is None:
        shared = None
        candidates: Sequence[Candidate] = grid(options, method)
        _check_candidates(candidates, task)
        found, model = _search_grid(
            task, candidates, seeds, folder, trained, force=force, jobs=jobs, progress=progress or None
        )
    else:
        search = _shared_search(task, options, study, trials or TRIALS, seeds, whole=bool(given))
        candidates = search.candidates
        shared = search_together(search, folder, trained, force=force, jobs=jobs, progress=progress or None)
        found, model = shared.found, shared.model
    chosen = found[0].name
    if as_json:
        more = {} if shared is None else {"trials": shared.trials()}
        numbers = model.report.to_dict()
        print_json({"best": chosen, "standings": _plain(found), **more, "report_numbers": numbers})
        return
    _show(found, folder / "results.json", False, seeds)
    if shared is not None:
        shared.show()
    say()
    say(f"Chosen: {chosen}")
    show_model(model, folder / "model")


def _search_grid(
    task: Task,
    candidates: Sequence[Candidate],
    seeds: int,
    folder: Path,
    trained: Callable[[str], TableModel],
    *,
    force: bool,
    jobs: int,
    progress: bool | None,
) -> tuple[list[Standing], TableModel]:
    """Try every candidate, in this command alone, and train the model of the best."""
    from selfcal.workflows.comparison import run_trials, standings

    with results_folder(folder):
        _try_reading(task)
        rows = run_trials(
            task,
            candidates,
            seeds=seeds,
            results=folder / "results.json",
            replace=force,
            jobs=jobs,
            title="Tuning",
            progress=progress,
        )
        found = standings(rows)
        return found, trained(found[0].name)


def _shared_search(
    task: Task, options: Mapping[str, Sequence[Any]], study: str, trials: int, seeds: int, *, whole: bool
) -> SharedSearch:
    """The search that other processes share; the options are the whole space, or are added to the usual one."""
    from selfcal.workflows.search_space import LogRange, Space, drawn
    from selfcal.workflows.shared_search import SharedSearch

    usual: Space = {"learning_rate": LogRange(*RATES), "hidden": _values("hidden", WIDTHS)}
    space: Space = options if whole else {**options, **usual}
    candidates = drawn(space, str(task.method), trials)
    _check_candidates(candidates, task)
    _try_reading(task)
    return SharedSearch(task, candidates, space, seeds, study)


def _check_file(data: str) -> None:
    from selfcal.tabular.io import check_source

    if data == "-":
        raise ConfigError("The data is read several times; pass a file instead of -.")
    check_source(data)


def _settings(max_epochs: int | None, time_budget: float | None) -> dict[str, Any]:
    if time_budget is not None:
        from selfcal._support.checks import in_range

        in_range("--time-budget", time_budget, 0, open_low=True)
    given = {"max_epochs": max_epochs, "time_budget": time_budget}
    return {name: value for name, value in given.items() if value is not None}


def _check_candidates(candidates: Sequence[Candidate], task: Task) -> None:
    """Report invalid values of the grid before the table is read."""
    from selfcal.workflows.table_model import TableModel

    for one in candidates:
        try:
            TableModel(one.method, **{**task.settings, **one.settings})
        except ConfigError as error:
            raise ConfigError(f"--grid {error}") from None


def _try_reading(task: Task) -> None:
    """Report what is wrong with the table once, and not in every trial."""
    from selfcal.tabular.io import read_table
    from selfcal.workflows.table_model import TableModel

    TableModel().parts(read_table(task.data, **task.reading), task.target, **task.fitting)


def _values(name: str, text: str) -> list[Any]:
    """The values of a setting: numbers, words, or widths of layers such as 64x64."""
    from selfcal._support.checks import one_of

    one_of(
        "--grid NAME=...", name, ("learning_rate", "hidden", "batch_size", "patience", "max_epochs", "method")
    )
    if name == "method":
        return [one_of("--grid method", word, METHODS) for word in words("--grid", text)]
    try:
        if name == "hidden":
            return [tuple(int(width) for width in word.split("x")) for word in words("--grid", text)]
        kind = float if name == "learning_rate" else int
        return [kind(word) for word in words("--grid", text)]
    except ValueError:
        raise ConfigError(
            f"--grid {name} must hold numbers, such as {name}={GRID.get(name, '100,200')}; got {text!r}."
        ) from None


def _plain(found: Sequence[Standing]) -> list[dict[str, Any]]:
    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return [
        {
            "name": one.name,
            **one.scores,
            "behind": {"value": number(one.behind), "low": number(one.low), "high": number(one.high)},
            "failures": dict(one.failures),
            "notes": {text: list(seeds) for text, seeds in one.notes.items()},
        }
        for one in found
    ]


def _show(found: Sequence[Standing], results: Path, as_json: bool, seeds: int) -> None:
    if as_json:
        print_json({"results": str(results), "seeds": seeds, "standings": _plain(found)})
        return
    from selfcal.reporting._names import counted

    rows = [("", "log loss", "vs. best", "accuracy", "ECE", "time")]
    for one in found:
        ends = "" if math.isnan(one.low) else f" [{one.low:+.4f}, {one.high:+.4f}]"
        numbers = [one.scores.get(key, math.nan) for key in ("log_loss", "accuracy", "ece", "seconds")]
        loss, accuracy, ece, seconds = numbers
        behind = "" if one.behind == 0 else f"{one.behind:+.4f}{ends}"
        rows.append(
            (
                one.name,
                f"{loss:.4f}",
                behind,
                f"{accuracy:.4f}",
                f"{ece:.4f}",
                f"{seconds:.1f} s",
            )
        )
        for seed, reason in one.failures.items():
            note(f"{one.name} with seed {seed} failed: {reason}")
        for text, seeds_with_it in one.notes.items():
            note(
                f"{one.name}, seed{'s' * (len(seeds_with_it) > 1)} {', '.join(map(str, seeds_with_it))}: {text}"
            )
    say(columns_text(rows), table=True)
    say(
        f"Means over {counted(seeds, 'split')}, on held-out rows; in brackets, 95% intervals of paired differences."
    )
    floor = found[0].scores.get("noise_floor", math.nan)
    say(f"By chance, a perfectly calibrated model would have an ECE of about {floor:.4f} on as few rows.")
    if any(one.low <= 0 for one in found[1:]):
        say("A difference whose interval contains 0 is not significant.")
    say(f"Results: {results}")
