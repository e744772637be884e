"""Faults injected for real: processes killed, disks filled, files damaged. See what is left, and go on from it."""

import contextlib
import os
import random
import resource
import shutil
import signal
import time

import pytest

from selfcal.errors import ConfigError, OutputError
from selfcal.training.checkpoint import Generations, unpacked
from tests.faults.disks import fill, make_read_only, small_disk
from tests.faults.training import POINTS, digest, run

__all__ = ["small_disk"]  # the fixture

QUICK = {"standard": (0, 1, 2), "bo4sc": (3, 4, 5), "crossfit": (0, 1, 4)}


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.suffix == ".tmp"]


def sound(folder):
    """How many steps the newest checkpoint has seen."""
    newest = Generations(folder, {}).files()[0]
    return unpacked(newest.read_bytes())["state"]["now"]["step"]["count"]


def survive(nursery, recipe, folder, kills):
    """Kill the run at each of these points, starting it again after each; the digest of what it comes to."""
    for point, number in kills:
        nursery.start(recipe, folder, point=point, number=number)
        assert nursery.wait()[0] == -signal.SIGKILL
    nursery.start(recipe, folder)
    code, found = nursery.wait()
    assert code == 0
    assert leftovers(folder) == []
    assert len(Generations(folder, {}).files()) == 2
    return found


@pytest.mark.fault("F1")
@pytest.mark.parametrize(
    "recipe", ["bo4sc", *(pytest.param(r, marks=pytest.mark.slow) for r in ("standard", "crossfit"))]
)
def test_killed_runs_come_to_the_same_bits(recipe, nursery, undisturbed, tmp_path):
    kills = [(POINTS[i], 3 + i) for i in QUICK[recipe]]
    assert survive(nursery, recipe, tmp_path, kills) == undisturbed[recipe]


@pytest.mark.fault("F1")
def test_a_killed_run_with_loaders_that_shuffle_may_go_on_for_longer(nursery, tmp_path):
    shuffled = {"shuffled": True}
    nursery.start("bo4sc", tmp_path, point="in a step", number=4, settings={**shuffled, "max_steps": 45})
    assert nursery.wait()[0] == -signal.SIGKILL
    nursery.start("bo4sc", tmp_path, settings={**shuffled, "max_steps": 45})
    assert nursery.wait()[0] == 0
    nursery.start("bo4sc", tmp_path, settings=shuffled)
    assert nursery.wait() == (0, digest(run("bo4sc", **shuffled)))


@pytest.mark.fault("F1")
@pytest.mark.slow_faults
@pytest.mark.parametrize("recipe", QUICK)
@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_killed_at_every_point(recipe, number, nursery, undisturbed, tmp_path):
    """With those below, 3 x (5 x 6 + 20) = 150 kills."""
    kills = [(point, number) for point in POINTS]
    assert survive(nursery, recipe, tmp_path, kills) == undisturbed[recipe]


@pytest.mark.fault("F1")
@pytest.mark.slow_faults
@pytest.mark.parametrize("recipe", QUICK)
def test_killed_at_random_moments(recipe, nursery, undisturbed, tmp_path):
    moments = random.Random(recipe)
    started = time.monotonic()
    nursery.start(recipe, tmp_path / "timed")
    assert nursery.wait()[0] == 0
    whole = time.monotonic() - started
    killed = 0
    while killed < 20:
        pid = nursery.start(recipe, tmp_path / "killed")
        time.sleep(moments.uniform(0, whole / 8))
        os.kill(pid, signal.SIGKILL)
        code, _ = nursery.wait()
        killed += code == -signal.SIGKILL
        if code == 0:  # it got through in spite of it all: once more from the start
            shutil.rmtree(tmp_path / "killed")
    nursery.start(recipe, tmp_path / "killed")
    assert nursery.wait() == (0, undisturbed[recipe])


@pytest.mark.fault("F2")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_asked_to_stop_once(number, code, nursery, undisturbed, tmp_path):
    pid = nursery.start("bo4sc", tmp_path, step=18, until_asked=True, settings={"checkpoint_seconds": 1e6})
    nursery.reach(18)
    os.kill(pid, number)
    ended, said = nursery.wait()
    assert ended == code
    assert said.startswith(f"Interrupted: Stopped by {number.name}; the checkpoint is in {tmp_path}")
    assert sound(tmp_path) == 18
    nursery.start("bo4sc", tmp_path)
    assert nursery.wait() == (0, undisturbed["bo4sc"])


@pytest.mark.fault("F2")
@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGTERM, -signal.SIGTERM, marks=pytest.mark.slow), (signal.SIGINT, 130)],
)
def test_asked_to_stop_twice(number, code, nursery, tmp_path):
    pid = nursery.start("standard", tmp_path, step=18, sleep=30)
    nursery.reach(18)
    started = time.monotonic()
    with contextlib.suppress(ProcessLookupError):  # two that come at once are one: again until it is gone
        for _ in range(40):
            os.kill(pid, number)
            time.sleep(0.2)
    assert nursery.wait()[0] == code
    assert time.monotonic() - started < 20
    assert sound(tmp_path) == 17
    assert leftovers(tmp_path) == []


def at_step(count, action):
    return lambda event: action() if event.n_steps == count else None


@pytest.mark.fault("F3")
def test_disk_full(small_disk, undisturbed):
    folder = small_disk / "run"
    with pytest.raises(OutputError, match=rf"{folder}/checkpoint-\d+.* bytes\): No space left") as error:
        run("bo4sc", folder, callback=at_step(24, lambda: fill(small_disk)), checkpoint_seconds=0)
    assert error.value.exit_code == 6
    assert leftovers(folder) == []
    assert 0 <= sound(folder) <= 24
    (small_disk / "filler").unlink()
    assert digest(run("bo4sc", folder)) == undisturbed["bo4sc"]


@pytest.mark.fault("F3")
def test_disk_full_from_the_start(small_disk):
    fill(small_disk)
    steps = []
    with pytest.raises(OutputError, match="No space left"):
        run("standard", small_disk / "run", callback=lambda event: steps.append(event.n_steps))
    assert steps == []


@pytest.mark.fault("F4")
def test_folder_turns_read_only(nursery, tmp_path):
    nursery.start("standard", tmp_path / "run", step=24, freeze=True)
    code, said = nursery.wait()
    assert code == 6
    assert f"Could not write {tmp_path}/run/checkpoint-" in said
    assert "Permission denied" in said
    assert sound(tmp_path / "run") == 23


@pytest.mark.fault("F4")
def test_disk_is_read_only_from_the_start(small_disk):
    make_read_only(small_disk)
    with pytest.raises(OutputError, match=rf"Could not write to the folder {small_disk}/run: Read-only"):
        run("standard", small_disk / "run")


@pytest.mark.fault("F4")
def test_files_may_not_grow(nursery, undisturbed, tmp_path):
    nursery.start("standard", tmp_path, step=24, max_bytes=1000)
    code, said = nursery.wait()
    assert code == 6
    assert f"Could not write {tmp_path}/checkpoint-" in said
    assert "bytes): File too large" in said
    assert leftovers(tmp_path) == []
    assert sound(tmp_path) == 23
    nursery.start("standard", tmp_path)
    assert nursery.wait() == (0, undisturbed["standard"])
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.fault("F4")
def test_folder_removed(nursery, tmp_path):
    nursery.start("standard", tmp_path / "run", step=24, remove=True)
    code, said = nursery.wait()
    assert code == 6
    assert "No such file or directory" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.fault("F4")
def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OutputError, match="Could not write to the folder"):
        run("standard", tmp_path / "taken" / "run")


@pytest.mark.fault("F12")
def test_two_processes_in_one_folder(nursery, tmp_path):
    pid = nursery.start("standard", tmp_path, step=18, sleep=30)
    nursery.reach(18)
    with pytest.raises(ConfigError, match=f"{tmp_path} is in use by process {pid}") as error:
        run("standard", tmp_path)
    assert error.value.exit_code == 2
    os.kill(pid, signal.SIGKILL)
    nursery.wait()
    assert (tmp_path / ".lock").read_text() == str(pid)
    run("standard", tmp_path)  # the dead process's lock is nobody's


@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    "recipe", ["bo4sc", *(pytest.param(r, marks=pytest.mark.slow) for r in ("standard", "crossfit"))]
)
def test_same_bits_with_another_hash_seed_no_home_and_no_network(recipe, nursery, undisturbed, tmp_path):
    """The nursery has a hash seed of its own and no home folder, and may open no socket."""
    assert os.environ.get("PYTHONHASHSEED", "random") != nursery.environment["PYTHONHASHSEED"]
    assert "HOME" not in nursery.environment
    nursery.start(recipe, tmp_path)
    assert nursery.wait() == (0, undisturbed[recipe])


@pytest.mark.fault("F14")
def test_the_network_is_watched(nursery, tmp_path):
    nursery.start("standard", tmp_path, step=6, network=True)
    code, said = nursery.wait()
    assert (code, said) == (1, "RuntimeError: the network was asked for: socket.__new__")
