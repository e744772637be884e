"""No room, no right to write, a quota used up: one error that names the place, and what was there before is whole."""

import errno
import os
import re
import resource

import pytest

from selfcal import BilevelStep
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import QUICK, as_json, people, run, shelf, succeed
from tests.faults.disks import fill, make_read_only, small_disk

__all__ = ["shelf", "small_disk"]  # the fixtures


def fit(shelf, out):
    return ["fit", shelf / "people.csv", "--target", "kind", "--out", out, "--force", *QUICK]


def failed_to_write(result, place):
    assert result.exit_code == 6, result.output
    assert "Traceback" not in result.output
    assert re.search(rf"error: Could not write {place} \((stopped after )?[\d,]+ bytes\): ", result.stderr)
    return result.stderr


@pytest.mark.fault("F3")
def test_disk_full_when_the_model_is_written(small_disk, shelf, tmp_path, monkeypatch):
    """The older model stays, the training is kept, and once there is room --resume need not train again."""
    model = small_disk / "m"
    succeed(*fit(shelf, model), "--seed", "1")
    before = as_json("inspect", model)
    save = TableModel.save
    with monkeypatch.context() as patched:
        patched.setattr(TableModel, "save", lambda self, path: fill(small_disk) or save(self, path))
        said = failed_to_write(run(*fit(shelf, model)), model)
    assert "No space left on device. Check that the folder is writable and the disk has space." in said
    assert as_json("inspect", model) == before
    assert sorted(os.listdir(small_disk)) == [".m.training", "filler", "m"]
    (small_disk / "filler").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(BilevelStep, "__call__", lambda *_: pytest.fail("it trained again"))
        succeed(*fit(shelf, model), "--resume")
    for path in (shelf / "people-model").iterdir():
        assert (model / path.name).read_bytes() == path.read_bytes()


@pytest.mark.fault("F3")
def test_disk_full_before_training(small_disk, shelf):
    fill(small_disk)
    result = run(*fit(shelf, small_disk / "m"))
    assert result.exit_code == 6
    assert "No space left on device" in result.stderr
    assert os.listdir(small_disk) == ["filler"]


@pytest.mark.fault("F3")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["report"], "r.html"),
        (["evaluate", "--report"], "r.html"),
        (["calibrate"], "p.csv"),
        (["calibrate"], "p.parquet"),
    ],
    ids=["report", "evaluate", "calibrate", "calibrate-parquet"],
)
def test_disk_full_at_a_page_or_a_table(words, name, small_disk, shelf):
    out = small_disk / name
    out.write_bytes(b"older")
    fill(small_disk)
    command, *option = words
    result = run(
        command, shelf / "predictions.csv", "--target", "kind", *(option or ["--out"]), out, "--force"
    )
    assert "No space left" in failed_to_write(result, out)
    assert sorted(os.listdir(small_disk)) == ["filler", name]
    assert out.read_bytes() == b"older"


@pytest.fixture
def no_growth():
    """No file may have more than 2,000 bytes, whoever writes it: a disk that is full for every user."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.fault("F3", "F4")
@pytest.mark.usefixtures("no_growth")
@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet"])
def test_no_room_for_predictions(name, shelf, tmp_path):
    (tmp_path / name).write_bytes(b"older")
    words = ["predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / name, "--force"]
    result = run(*words)
    failed_to_write(result, tmp_path / name)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


@pytest.mark.fault("F4")
@pytest.mark.usefixtures("no_growth", "_no_step")
def test_no_room_for_a_checkpoint_ends_the_command_before_training(shelf, tmp_path):
    result = run(*fit(shelf, tmp_path / "m"))
    assert result.exit_code == 6, result.output
    assert "bytes): File too large" in result.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.fault("F4")
@pytest.mark.usefixtures("_no_step")
def test_a_read_only_disk_ends_the_command_before_training(small_disk, shelf):
    make_read_only(small_disk)
    result = run(*fit(shelf, small_disk / "m"))
    assert result.exit_code == 6
    assert f"Could not write to the folder {small_disk}/.m.training: Read-only file system" in result.stderr
    result = run("predict", shelf / "people-model", shelf / "people.csv", "--out", small_disk / "p.csv")
    assert "Read-only file system" in failed_to_write(result, small_disk / "p.csv")


@pytest.mark.fault("F4")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere; a read-only disk stands in")
def test_a_folder_that_cannot_be_written_to(shelf, tmp_path):
    tmp_path.chmod(0o500)
    assert run(*fit(shelf, tmp_path / "m")).exit_code == 6


@pytest.mark.fault("F4")
def test_the_place_of_the_output_is_a_file(shelf, tmp_path):
    (tmp_path / "file").write_text("")
    place = tmp_path / "file"
    result = run("predict", shelf / "people-model", shelf / "people.csv", "--out", place / "p.csv")
    assert result.exit_code == 6
    assert run(*fit(shelf, place / "model")).exit_code == 6


@pytest.fixture
def quota(monkeypatch):
    """A file server that says only when data is to be synced that there is no quota left, from that call on."""
    fsync, left = os.fsync, [0]

    def exceeded(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        fsync(descriptor)

    def allow(calls):
        left[0] = calls
        monkeypatch.setattr(os, "fsync", exceeded)

    return allow


@pytest.mark.fault("F4")
@pytest.mark.parametrize(
    ("calls", "left"), [(0, ["m"]), (2, [".m.training", "m"]), (6, [".m.training", "m"])]
)
def test_the_quota_is_used_up_in_training(calls, left, quota, shelf, tmp_path):
    """At the first checkpoint, at the last, and amid the files of the model."""
    people().write_csv(tmp_path / "people.csv")
    out = tmp_path / "out"
    succeed(*fit(shelf, out / "m"))
    before = as_json("inspect", out / "m")
    quota(calls)
    result = run(*fit(shelf, out / "m"))
    assert result.exit_code == 6, result.output
    assert re.search(r"error: Could not write .* \([\d,]+ bytes\): Disk quota exceeded", result.stderr)
    assert sorted(os.listdir(out)) == left
    assert [path for path in out.rglob("*") if ".tmp" in path.name] == []
    quota(10**9)
    assert as_json("inspect", out / "m") == before
    succeed(*fit(shelf, out / "m"), "--resume")
    assert os.listdir(out) == ["m"]


@pytest.mark.fault("F4")
def test_the_quota_is_used_up_at_a_page_or_a_table(quota, shelf, tmp_path):
    quota(0)
    out = tmp_path / "p.csv"
    result = run("predict", shelf / "people-model", shelf / "people.csv", "--out", out)
    assert "Disk quota exceeded" in failed_to_write(result, out)
    page = tmp_path / "r.html"
    result = run("report", shelf / "predictions.csv", "--target", "kind", "--out", page)
    assert "Disk quota exceeded" in failed_to_write(result, page)
    assert os.listdir(tmp_path) == []
