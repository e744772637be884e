import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from selfcal._support import progress
from selfcal._support.parallel import Results, run_all_units, run_units
from selfcal.errors import ConfigError, DataError, OutputError

UNITS = [("a", 0), ("b", 0), ("a", 1)]


def work(marks, unit, slow=0.0):
    """Runs in another process; leaves a mark that it ran."""
    name, seed = unit
    with open(marks, "a") as file:
        file.write(f"{name}{seed}\n")
    time.sleep(slow)
    if marks.with_name(f"die-{name}{seed}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if marks.with_name(f"fail-{name}{seed}").exists():
        raise RuntimeError("pulled the plug")
    return [{"dataset": name, "seed": seed, "method": m, "value": len(name) + seed} for m in ("x", "y")]


@pytest.fixture
def marks(tmp_path):
    return tmp_path / "marks"


def test_finished_units_are_not_run_again(tmp_path, marks):
    results = Results(tmp_path / "results.json", {"grid": (1, 2)})
    fails = tmp_path / "fail-a1"
    fails.touch()
    with pytest.raises(RuntimeError, match="pulled the plug"):
        run_units(partial(work, marks), UNITS, results, jobs=1, title="Test")
    assert len(results.rows()) == 4
    fails.unlink()
    rows = run_units(partial(work, marks), UNITS, results, jobs=2, title="Test")
    assert [(r["dataset"], r["seed"], r["method"]) for r in rows] == [(*u, m) for u in UNITS for m in "xy"]
    assert marks.read_text().split() == ["a0", "b0", "a1", "a1"]
    stamp = results.path.stat().st_mtime_ns
    again = run_units(partial(work, marks), UNITS, results, jobs=2, title="Test")
    assert results.path.stat().st_mtime_ns == stamp
    assert again == rows
    assert len(marks.read_text().split()) == 4


def test_a_unit_that_kills_its_process_harms_no_other(tmp_path, marks):
    results = Results(tmp_path / "results.json", {})
    dies = tmp_path / "die-b0"
    dies.touch()
    rows = run_all_units(partial(work, marks), UNITS, results, jobs=2, title="Test", key=("dataset", "seed"))
    assert [(r["dataset"], r["seed"]) for r in rows] == [("a", 0), ("a", 0), ("b", 0), ("a", 1), ("a", 1)]
    assert "process died" in rows[2]["failed"]
    assert results.rows() != []
    dies.unlink()
    assert (
        run_all_units(partial(work, marks), UNITS, results, jobs=1, title="Test", key=("dataset", "seed"))
        == rows
    )


def test_asking_for_less_gives_less(tmp_path, marks):
    results = Results(tmp_path / "results.json", {})
    run_units(partial(work, marks), UNITS, results, jobs=1, title="Test")
    assert len(run_units(partial(work, marks), UNITS[:1], results, jobs=1, title="Test")) == 2
    assert len(results.rows()) == 6


def test_progress_in_lines_only_if_asked_for(tmp_path, marks, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    run_units(partial(work, marks), UNITS[:1], Results(tmp_path / "results.json", {}), jobs=1, title="Test")
    assert capsys.readouterr().err == ""
    run_units(
        partial(work, marks),
        UNITS[:2],
        Results(tmp_path / "results.json", {}),
        jobs=1,
        title="Test",
        progress=True,
    )
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Test 50%: 1 of 2 done; ")
    assert lines[1].startswith("Test 100%: 2 of 2 done, last b, seed 0; ")


def test_results_of_other_settings_are_refused(tmp_path):
    path = tmp_path / "results.json"
    Results(path, {"epochs": 5, "grid": (1,)}).write([])
    with pytest.raises(ConfigError, match=r"other settings \(epochs\).*another --out"):
        Results(path, {"epochs": 6, "grid": (1,)}).rows()


@pytest.mark.parametrize("content", ["", "[]", "{}", "\x00\x01", json.dumps({"settings": 1})])
def test_a_broken_file_is_refused(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(DataError, match="not a results file"):
        Results(path, {}).rows()


def test_a_folder_that_cannot_be_written_to_fails_before_the_work(tmp_path, marks):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        run_units(
            partial(work, marks), UNITS, Results(tmp_path / "file" / "results.json", {}), jobs=1, title="Test"
        )
    assert not marks.exists()


@pytest.mark.parametrize("kill", ["interrupted", pytest.param("killed", marks=pytest.mark.slow)])
def test_the_workers_end_with_the_run(kill, tmp_path, marks):
    script = (
        "from functools import partial\n"
        "from pathlib import Path\n"
        "from tests.support.test_parallel import UNITS, work\n"
        "from selfcal._support.parallel import Results, run_units\n"
        "if __name__ == '__main__':\n"
        f"    slow = partial(work, Path({str(marks)!r}), slow=60)\n"
        f"    run_units(slow, UNITS, Results(Path({str(tmp_path)!r}) / 'r.json', {{}}), jobs=2, title='Test')\n"
    )
    (tmp_path / "run.py").write_text(script)
    running = subprocess.Popen(
        [sys.executable, tmp_path / "run.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (marks.exists() and len(marks.read_text().split()) == 2) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(marks.read_text().split()) == 2
    if kill == "interrupted":
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    else:
        running.kill()
    assert running.wait(timeout=20) != 0
    deadline = time.monotonic() + 20
    while alive(running.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(running.pid)


def alive(group):
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
