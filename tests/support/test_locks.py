import os
import shutil
import subprocess
import sys
import threading

from selfcal._support import locks
from selfcal._support.locks import locked
from selfcal.errors import ConfigError

TAKEN = "import sys; from selfcal._support.locks import locked\nwith locked(sys.argv[1]): print('in')"
IN_USE = f"is in use by process {os.getpid()}. Wait for it to end"


def other(folder):
    """Try to lock the folder in another process."""
    command = [sys.executable, "-c", TAKEN, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_lock_ends_with_its_block(tmp_path):
    with locked(tmp_path):
        assert IN_USE in other(tmp_path).stderr
    assert other(tmp_path).stdout == "in\n"
    assert list(tmp_path.iterdir()) == []


def test_waiting_for_another_process(tmp_path):
    until_told = TAKEN.replace("print('in')", "print('in', flush=True); input()")
    command = [sys.executable, "-c", until_told, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "in\n"
    told = []

    def waiting():
        told.append(holder.poll())
        holder.communicate("\n")

    with locked(tmp_path, waiting=waiting):
        assert told == [None]
        assert holder.returncode == 0
        assert IN_USE in other(tmp_path).stderr


def test_a_folder_that_was_made_and_left_empty_is_removed(tmp_path):
    with locked(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "a" / "b") as folder:
        (folder / "file").touch()
    assert list(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "file"]


def test_a_second_thread_is_refused_and_does_not_end_the_lock(tmp_path):
    """The system ends a lock as soon as its process closes the file, whichever thread does so."""
    (tmp_path / "link").symlink_to(tmp_path)
    refusals = []

    def enter(folder):
        try:
            with locked(folder):
                pass
        except ConfigError as error:
            refusals.append(str(error))

    with locked(tmp_path):
        for folder in (tmp_path, tmp_path / "link"):
            thread = threading.Thread(target=enter, args=[folder])
            thread.start()
            thread.join()
        assert [IN_USE in text for text in refusals] == [True, True]
        assert IN_USE in other(tmp_path).stderr
    enter(tmp_path)
    assert len(refusals) == 2


def test_a_folder_removed_by_its_owner_is_locked_anew(tmp_path, monkeypatch):
    """Between the opening of the file and the lock, whoever had it before may remove the folder."""
    acquired, removed = locks._acquired, []

    def too_late(descriptor):
        if not removed:
            removed.append(shutil.rmtree(tmp_path / "a"))
        return acquired(descriptor)

    monkeypatch.setattr(locks, "_acquired", too_late)
    with locked(tmp_path / "a"):
        assert IN_USE in other(tmp_path / "a").stderr
    assert len(removed) == 1


def test_a_lock_of_others_in_the_place_of_a_removed_one_stays(tmp_path):
    with locked(tmp_path):
        (tmp_path / ".lock").unlink()
        (tmp_path / ".lock").write_text("another process")
    assert (tmp_path / ".lock").read_text() == "another process"
