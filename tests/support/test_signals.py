import signal
import subprocess
import sys

import pytest

from selfcal._support.signals import stop_requests


def test_the_first_request_is_noted_and_the_second_acts():
    with stop_requests() as asked:
        assert asked() is None
        signal.raise_signal(signal.SIGINT)
        assert asked() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_handlers_come_back_after_an_error(number):
    before = signal.getsignal(number)

    with pytest.raises(ValueError, match="no number"), stop_requests():
        int("no number" if signal.getsignal(number) != before else "1")
    assert signal.getsignal(number) == before


def test_what_is_ignored_stays_ignored():
    """Under nohup a run goes on when its terminal is closed; so it is with the signals that were switched off."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_requests() as asked:
            signal.raise_signal(signal.SIGINT)
            assert asked() is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_was_not_polled_acts_at_the_end():
    with pytest.raises(KeyboardInterrupt), stop_requests():
        signal.raise_signal(signal.SIGINT)


def test_a_request_is_not_lost_where_the_work_fails():
    """The signal may be why it fails: it ends the processes that the work waits for, too."""

    def work():
        with stop_requests():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("a worker has died")

    with pytest.raises(KeyboardInterrupt):
        work()


def script(*lines):
    """Run some lines, the last ones in the function `work`, in a process of their own."""
    code = "\n".join(
        ["import os, signal, sys", "from selfcal._support.signals import *", *lines, "run_command(work)"]
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_command_ends_with_the_number_of_the_signal():
    ended = script("def work():", "  os.kill(os.getpid(), signal.SIGTERM)", "  print('not here')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", "Stopped by SIGTERM.\n")


def test_an_error_that_came_of_a_signal_is_not_shown():
    ended = script(
        "def work():",
        "  try:",
        "    os.kill(os.getpid(), signal.SIGINT)",
        "  except BaseException:",
        "    raise RuntimeError('a library was interrupted') from None",
    )
    assert (ended.returncode, ended.stderr) == (130, "Stopped by SIGINT.\n")


def test_a_signal_in_a_destructor_is_not_lost():
    ended = script(
        "class Thing:",
        "  def __del__(self):",
        "    os.kill(os.getpid(), signal.SIGTERM)",
        "def work():",
        "  thing = Thing()",
        "  del thing",
        "  print('not here')",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", "Stopped by SIGTERM.\n")


def test_a_signal_after_the_work_changes_nothing():
    ended = script(
        "import atexit",
        "class Last:",
        "  def __del__(self, kill=os.kill, pid=os.getpid()):",
        "    kill(pid, 15)",
        "last = Last()",
        "def work():",
        "  print('done')",
        "  atexit.register(os.kill, os.getpid(), signal.SIGTERM)",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_what_is_ignored_stays_ignored_in_a_command():
    ended = script(
        "signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "def work():",
        "  os.kill(os.getpid(), signal.SIGINT)",
        "  print('here')",
    )
    assert (ended.returncode, ended.stdout) == (0, "here\n")


def test_errors_of_a_command_keep_their_exit_code():
    ended = script("def work():", "  sys.exit(3)")
    assert (ended.returncode, ended.stderr) == (3, "")
