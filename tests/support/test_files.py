import os
import resource
import subprocess
import sys

import pytest

from selfcal._support.files import (
    previous,
    remove_leftovers,
    write_atomically,
    write_folder_atomically,
    write_together,
)
from selfcal.errors import OutputError

OLD, NEW = {"a": b"old", "b": b"old"}, {"a": b"new", "c": b"new" * 3000}


def test_writes_text_and_bytes_and_makes_folders(tmp_path):
    assert write_atomically(tmp_path / "a" / "b.txt", "päth").read_text() == "päth"
    assert write_atomically(tmp_path / "c.bin", b"\x00").read_bytes() == b"\x00"


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("here")
    with pytest.raises(OutputError, match=r"Could not write .*taken/b\.txt \(5 bytes\)"):
        write_atomically(tmp_path / "taken" / "b.txt", "hello")


def test_folder_is_only_made_if_wanted(tmp_path):
    with pytest.raises(OutputError, match="No such file or directory"):
        write_atomically(tmp_path / "gone" / "a.txt", "a", make_folder=False)
    assert not (tmp_path / "gone").exists()


def test_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.txt", "a")
    assert os.listdir(tmp_path) == []


def test_files_that_belong_together_change_together(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "taken" / "b.txt"
    write_together({first: "old"})
    (tmp_path / "taken").write_text("here")
    with pytest.raises(OutputError, match=r"Could not write .*taken/b\.txt \(5 bytes\)"):
        write_together({first: "new", second: b"hello"})
    assert (first.read_text(), sorted(os.listdir(tmp_path))) == ("old", ["a.txt", "taken"])
    (tmp_path / "taken").unlink()
    write_together({first: "new", second: b"hello"})
    assert (first.read_text(), second.read_text()) == ("new", "hello")


def test_what_dead_writers_left_is_removed(tmp_path):
    for name in (".a.txt.123.tmp", "mine.tmp", ".hidden"):
        (tmp_path / name).write_text("half")
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "mine.tmp"]


LITTLE_ROOM = """
import resource, signal, sys
from selfcal._support.files import write_atomically, write_folder_atomically
from selfcal.errors import OutputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    {call}
except OutputError as error:
    sys.exit(str(error))
"""
"""A real write error: the process may not write files beyond 4 kB."""


def in_little_room(call, path):
    script = LITTLE_ROOM.format(call=call)
    ran = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert "100,000 bytes" in ran.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


def test_full_disk_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    target = write_atomically(tmp_path / "results.json", "old")
    in_little_room("write_atomically(sys.argv[1], 'x' * 100_000)", target)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_full_disk_keeps_the_old_folder_and_leaves_nothing_behind(tmp_path):
    target = write_folder_atomically(tmp_path / "model", OLD)
    in_little_room("write_folder_atomically(sys.argv[1], {'a': b'x' * 1000, 'b': b'x' * 99_000})", target)
    assert content(target) == OLD
    assert os.listdir(tmp_path) == ["model"]


def content(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


class TestFolders:
    def test_written_replaced_and_nothing_left_beside(self, tmp_path):
        target = tmp_path / "in" / "model"
        assert content(write_folder_atomically(target, OLD)) == OLD
        assert content(write_folder_atomically(target, NEW, replaces=["b"])) == NEW
        assert os.listdir(target.parent) == ["model"]

    def test_what_the_path_points_to_is_replaced_and_not_the_link(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path / "real")
        write_folder_atomically(tmp_path / "link", OLD)
        assert content(write_folder_atomically(tmp_path / "link", NEW, replaces=["b"])) == NEW
        assert (tmp_path / "link").is_symlink()
        assert content(tmp_path / "real") == NEW

    @pytest.mark.parametrize("others", [["notes.txt"], ["b", "notes.txt", "figures"]])
    def test_other_files_are_never_lost(self, tmp_path, others):
        target = write_folder_atomically(tmp_path / "model", OLD)
        for name in others:
            (target / name).write_text("mine")
        with pytest.raises(
            OutputError, match=r"is not replaced: it holds '(b|figures|notes\.txt)'.*would be lost"
        ):
            write_folder_atomically(target, NEW)
        assert (target / others[-1]).read_text() == "mine"

    def test_a_file_in_its_place(self, tmp_path):
        (tmp_path / "model").write_text("mine")
        with pytest.raises(OutputError, match="is not replaced"):
            write_folder_atomically(tmp_path / "model", NEW)
        assert (tmp_path / "model").read_text() == "mine"

    @pytest.mark.parametrize("call", range(6))
    @pytest.mark.parametrize("function", ["fsync", "rename", "mkdir"])
    def test_a_full_disk_at_any_moment_leaves_the_old_or_the_new(self, tmp_path, monkeypatch, function, call):
        target = write_folder_atomically(tmp_path / "model", OLD)
        real, calls = getattr(os, function), []

        def failing(*args, **kwargs):
            calls.append(args)
            if len(calls) == call + 1:
                raise OSError(28, "No space left on device")
            return real(*args, **kwargs)

        monkeypatch.setattr(os, function, failing)
        message = ""
        try:
            write_folder_atomically(target, NEW, replaces=["b"])
        except OutputError as error:
            message = str(error)
        assert content(target) == (OLD if message else NEW)
        assert not message or "(9,003 bytes): No space left on device" in message
        assert os.listdir(tmp_path) == ["model"]

    @pytest.mark.parametrize("call", range(7))
    def test_killed_at_any_moment_a_whole_folder_is_there_and_the_next_save_cleans_up(self, tmp_path, call):
        target = write_folder_atomically(tmp_path / "model", OLD)
        script = (
            "import os, sys\n"
            "from selfcal._support.files import write_folder_atomically\n"
            "calls = 0\n"
            "def dying(real):\n"
            "    def call(*args):\n"
            "        global calls\n"
            "        calls += 1\n"
            f"        os.kill(os.getpid(), 9) if calls > {call} else real(*args)\n"
            "    return call\n"
            "os.fsync, os.rename = dying(os.fsync), dying(os.rename)\n"
            f"write_folder_atomically(sys.argv[1], {NEW!r}, replaces=['b'])\n"
        )
        ran = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
        assert ran.returncode == (-9 if call < 6 else 0)
        found = target if target.exists() else previous(target)
        assert content(found) == (NEW if call >= 5 else OLD)
        assert content(write_folder_atomically(target, OLD, replaces=["c"])) == OLD
        assert os.listdir(tmp_path) == ["model"]
