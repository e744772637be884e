"""The same fit by workers of joblib, however many there are, whatever starts them, and if one of them dies."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import joblib
import polars as pl
import pytest

from selfcal._support.jobs import completed_calls, end_idle_workers, run_calls


@pytest.mark.parametrize("n_jobs", [2, 4])
def test_processes(n_jobs, fit, same):
    same(fit(n_jobs=n_jobs))


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_other_backends(backend, fit, same):
    with joblib.parallel_config(backend, n_jobs=2):
        same(fit())


def test_a_worker_that_is_killed_costs_a_retry(fit, same):
    killed = []

    def kill():
        while not (workers := loky_workers()):
            time.sleep(0.05)
        time.sleep(2.0)
        os.kill(workers[0].pid, signal.SIGKILL)
        killed.append(workers[0].pid)

    killer = threading.Thread(target=kill)
    killer.start()
    found = fit(n_jobs=2)
    killer.join()
    assert killed
    same(found)


def loky_workers():
    return [child for child in multiprocessing.active_children() if child.name.startswith("LokyProcess")]


def inner(number):
    """A call that makes calls in processes of its own."""
    return [number + one for one in run_calls(abs, [(-1,), (-2,)], n_jobs=2)]


def test_a_process_that_used_workers_ends_at_once():
    """Its idle workers wait for more work for five minutes, and it would wait for them."""
    started = time.monotonic()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(inner, 10).result() == [11, 12]
    assert list(completed_calls(inner, [(10,)], n_jobs=1, isolated=True)) == [(0, [11, 12])]
    end_idle_workers()
    assert time.monotonic() - started < 120  # instead of 300 and more


SLOW = ["--max-epochs", "100000", "--time-budget", "3600", "--jobs", "2", "--seed", "0"]


@pytest.fixture
def table(tmp_path, data):
    X, y = data
    path = tmp_path / "data.csv"
    pl.DataFrame({**{f"x{i}": X[:, i] for i in range(8)}, "kind": y}).write_csv(path)
    return path


def test_an_interrupt_ends_the_workers_of_a_command_which_can_be_resumed(table, tmp_path):
    command = [
        sys.executable,
        "-m",
        "selfcal",
        "fit",
        table,
        "--target",
        "kind",
        "--out",
        tmp_path / "m",
        *SLOW,
    ]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while not list(tmp_path.rglob("checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(tmp_path.rglob("checkpoint-*"))
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Add --resume" in said
    assert "Traceback" not in said
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


def test_a_fit_that_was_stopped_goes_on_with_more_workers(fit, same, tmp_path, monkeypatch):
    """What was trained is in the checkpoints, whoever trained it."""

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("selfcal.ensembles.discriminant.DiscriminantTrainer.train", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(checkpoint_dir=tmp_path / "run")
    kept = sorted(tmp_path.rglob("checkpoint-*"))
    assert kept
    stamps = [path.stat().st_mtime_ns for path in kept]
    same(fit(checkpoint_dir=tmp_path / "run", n_jobs=2))
    assert [path.stat().st_mtime_ns for path in kept] == stamps
