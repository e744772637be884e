import os
import subprocess
import sys

from selfcal._locks import locked


def test_a_lock_ends_with_its_block(tmp_path):
    taken = "import sys; from selfcal._locks import locked\nwith locked(sys.argv[1]): print('in')"

    def other():
        command = [sys.executable, "-c", taken, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with locked(tmp_path):
        assert f"is in use by process {os.getpid()}. Wait for it to end" in other().stderr
    assert other().stdout == "in\n"
