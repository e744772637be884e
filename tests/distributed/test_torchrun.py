"""One network in several processes started by torchrun: the same numbers as in one."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

SCRIPT = Path(__file__).with_name("training_script.py")
LIMIT = 240


def run(folder, case, *, processes=1, steps=40, restarts=0):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(SCRIPT), str(folder), case, str(steps)]
    if processes > 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command[1:1] = [*torchrun, f"--max-restarts={restarts}", "--monitor-interval=0.1"]
    return subprocess.Popen(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def result(folder, case, **options):
    process = run(folder, case, **options)
    printed, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, printed[-3000:]
    return load_file(folder / "result.safetensors")


def largest_difference(one, other, names=lambda name: True):
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one if names(name))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return result(tmp_path_factory.mktemp("alone") / "equal", "equal")


@pytest.mark.fault("F11")
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_together_reach_what_one_reaches(processes, alone, tmp_path):
    together = result(tmp_path / "equal", "equal", processes=processes)
    # a difference quotient amplifies rounding; all else is equal but for the order of sums
    quotient = ("bo4sc", "gamma_net_sece")
    assert largest_difference(alone, together, lambda name: name.startswith(quotient)) < 1e-10
    assert largest_difference(alone, together, lambda name: not name.startswith(quotient)) < 1e-12


def test_a_loader_that_shuffles_gives_each_process_its_part_of_the_same_batches(tmp_path):
    one, two = (result(tmp_path / str(n), "loader", processes=n) for n in (1, 2))
    assert largest_difference(one, two) < 1e-8


def test_running_averages_of_batch_norm_are_the_mean_of_the_parts(tmp_path):
    one, two = (result(tmp_path / str(n), "statistics", processes=n) for n in (1, 2))
    mean, variance = "statistics/1.running_mean", "statistics/1.running_var"
    # 102 and 101 rows; the variance between the parts is not seen
    assert float((one[mean] - two[mean]).abs().max()) < 1e-2
    assert 0 < float((one[variance] - two[variance]).abs().max()) < 0.1


@pytest.mark.fault("F10")
def test_a_job_whose_processes_are_killed_continues_to_the_undisturbed_result(tmp_path):
    undisturbed = result(tmp_path / "undisturbed", "resumed", processes=2, steps=400)
    killed, folder, chosen = set(), tmp_path / "killed", random.Random(0)
    job = run(folder, "resumed", processes=2, steps=400, restarts=10)
    deadline = time.monotonic() + LIMIT
    while job.poll() is None and len(killed) < 3:
        assert time.monotonic() < deadline
        time.sleep(chosen.uniform(0.2, 1))
        file = folder / f"process-{chosen.randrange(2)}"
        number = int(file.read_text() or 0) if file.exists() else 0
        if number and number not in killed and list(folder.glob("checkpoint/checkpoint-*")):
            with suppress(ProcessLookupError):  # ended by the death of the other
                os.kill(number, signal.SIGKILL)
                killed.add(number)
    printed, _ = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, printed[-3000:]
    assert killed
    resumed = load_file(folder / "result.safetensors")
    assert all(torch.equal(undisturbed[name], resumed[name]) for name in undisturbed)


@pytest.mark.fault("F10")
def test_a_full_disk_ends_all_processes(tmp_path):
    job = run(tmp_path / "full", "disk_full", processes=2, steps=2000)
    printed, _ = job.communicate(timeout=LIMIT)
    assert job.returncode != 0
    assert "File too large" in printed
    assert not list((tmp_path / "full").glob("result*"))


@pytest.mark.fault("F10")
def test_a_process_that_hangs_ends_the_job(tmp_path):
    job = run(tmp_path / "hanging", "hanging", processes=2)
    printed, _ = job.communicate(timeout=LIMIT)
    assert job.returncode != 0
    assert "Process 0 of 2 lost the others" in printed
