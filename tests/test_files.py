import os
import resource
import subprocess
import sys

import pytest

from selfcal._files import remove_leftovers, write_atomically
from selfcal.errors import OutputError


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


def test_what_dead_writers_left_is_removed(tmp_path):
    for name in (".a.txt.123.tmp", "mine.tmp", ".hidden"):
        (tmp_path / name).write_text("half")
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "mine.tmp"]


def test_full_disk_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    """A real write error: the process may not write files beyond 4 kB."""
    target = tmp_path / "results.json"
    write_atomically(target, "old")
    script = (
        "import resource, signal, sys\n"
        "from selfcal._files import write_atomically\n"
        "from selfcal.errors import OutputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    write_atomically(sys.argv[1], 'x' * 100_000)\n"
        "except OutputError as error:\n"
        "    sys.exit(str(error))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(target)], capture_output=True, text=True, check=False
    )
    assert "100,000 bytes" in ran.stderr
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096
