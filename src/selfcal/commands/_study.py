"""What `selfcal tune --study` does besides searching a grid: a search that other processes share, and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selfcal._support.parallel import Results, Row
from selfcal.commands._outputs import check_model_folder, results_folder
from selfcal.commands._shared import columns_text, note, say
from selfcal.errors import TrainingError
from selfcal.workflows._study_storage import without_password
from selfcal.workflows.comparison import Standing, standings
from selfcal.workflows.search_space import described
from selfcal.workflows.shared_search import SharedSearch, Trial
from selfcal.workflows.table_model import TableModel


@dataclass(frozen=True)
class Shared:
    """The trials of all workers, those that came to their end from best to worst, and the model of the best."""

    ran: Sequence[Trial]
    found: list[Standing]
    model: TableModel

    def trials(self) -> list[dict[str, Any]]:
        """All trials with their status, for other programs."""
        return [
            {
                "number": one.number,
                "name": one.name,
                "status": one.status,
                "seeds": len(one.rows),
                "log_loss": _mean(one.rows) if one.rows and one.reason is None else None,
                "failed": one.reason,
                "worker": one.worker,
            }
            for one in self.ran
        ]

    def show(self) -> None:
        """Print the trials that did not come to their end."""
        best = next(one for one in self.ran if one.name == self.found[0].name and one.status == "complete")
        pruned = [
            (_mean(one.rows) - _mean(best.rows[: len(one.rows)]), one)
            for one in self.ran
            if one.status == "pruned"
        ]
        if pruned:
            say()
            say("Dropped after the first seeds, on which they are compared with the best:")
            rows = [
                (one.name, f"{_mean(one.rows):.4f}", f"{behind:+.4f}", str(len(one.rows)))
                for behind, one in sorted(pruned, key=lambda each: each[0])
            ]
            say(columns_text([("", "log loss", "vs. best", "seeds"), *rows]), table=True)
        for one in self.ran:
            if one.status == "failed":
                note(f"Trial {one.number}, {one.name}, failed: {one.reason}")
            if one.status == "lost":
                again = [other for other in self.ran if other.name == one.name and other.status != "lost"]
                then = f"repeated as trial {again[0].number}" if again else "given up"
                note(f"Trial {one.number}, {one.name}, was lost with its worker ({one.worker}) and {then}.")


def search_together(
    search: SharedSearch,
    folder: Path,
    trained: Callable[[str], TableModel],
    *,
    force: bool,
    jobs: int,
    progress: bool | None,
) -> Shared:
    """Run the search with the other workers; the first one to get the folder trains the model, all return it."""
    settings = {**search.identity, "trials": len(search.candidates)}
    kept = Results(folder / "results.json", settings, replace=force, remedy="add --force to replace them")
    kept.rows()  # refuses those of another search before this one begins
    for name, values in described(search.space).items():
        note(f"Search: {name} from {values}.")
    note(
        f"{len(search.candidates)} trials with up to {search.seeds} seeds, in the study "
        f"{without_password(search.place)}."
    )
    ran = search.run(jobs=jobs, progress=progress)
    rows = [{**row, "trial": one.number, "status": one.status} for one in ran for row in one.rows]
    complete = [row for row in rows if row["status"] == "complete"]
    if not complete:
        reasons = [one.reason or "its worker died" for one in ran]
        raise TrainingError(f"Every trial failed; the first error was: {reasons[0]}")
    found = standings(complete)
    with results_folder(folder, waiting=lambda: note("Another process trains the model; waiting for it.")):
        model = folder / "model"
        if model.exists() and kept.rows() == rows:
            return Shared(ran, found, TableModel.load(model))
        check_model_folder(model, force=force)
        kept.write(rows)
        return Shared(ran, found, trained(found[0].name))


def _mean(rows: Sequence[Row]) -> float:
    return float(np.mean([row["log_loss"] for row in rows]))
