"""F1: many files, killed in the middle with SIGKILL; the same command goes on where it stood."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.commands.conftest import people, run, shelf, succeed
from tests.workflows.test_sums import table

__all__ = ["shelf"]  # the fixture

N_PARTS = 12
SECONDS = 120


def killed_after(folder, n_files, *words):
    """Start a command, and kill it with its workers as soon as the folder holds so many files."""
    process = subprocess.Popen(
        [sys.executable, "-m", "selfcal", *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + SECONDS
    try:
        while len(finished(folder)) < n_files:
            assert process.poll() is None, "the command ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.002)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def finished(folder):
    return [path for path in folder.iterdir() if path.name[0] != "."] if folder.exists() else []


@pytest.mark.fault("F1")
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_evaluation_goes_on_with_the_other_parts(tmp_path, jobs):
    folder, sums = tmp_path / "in", tmp_path / "sums"
    folder.mkdir()
    for number in range(N_PARTS):
        table().sample(4000, seed=number, shuffle=True).write_csv(folder / f"{number}.csv")
    words = ["evaluate", folder, "--target", "y"]
    killed_after(sums, 3, *words, "--sums", sums, "--jobs", jobs)
    kept = len(finished(sums))
    assert 3 <= kept < N_PARTS
    resumed = json.loads(succeed(*words, "--sums", sums, "--json").stdout)
    assert resumed.pop("files")["reused"] == kept
    undisturbed = json.loads(succeed(*words, "--json").stdout)
    undisturbed.pop("files")
    assert resumed == undisturbed
    assert not list(sums.glob("*.tmp"))


@pytest.mark.slow
@pytest.mark.fault("F1")
def test_prediction_goes_on_with_the_other_files(shelf, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for number in range(N_PARTS):
        people(2000, seed=number).write_csv(folder / f"{number}.csv")
    words = ["predict", shelf / "people-model", folder, "--out"]
    killed_after(out, 3, *words, out, "--jobs", 2)
    assert 3 <= len(finished(out)) < N_PARTS
    assert run(*words, out).exit_code == 2
    succeed(*words, out, "--resume")
    succeed(*words, tmp_path / "undisturbed")
    for path in finished(tmp_path / "undisturbed"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert sorted(os.listdir(out)) == sorted(os.listdir(tmp_path / "undisturbed"))
