"""Small disks that fill up for real."""

import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False, capture_output=True
    ).returncode:
        pytest.skip("this user may not mount a disk; tests with a limit on the size of files stand in")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(folder):
    """Leave no room on the disk of a folder."""
    with open(folder / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def make_read_only(disk):
    """Allow nobody to write to a disk, not even root."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
