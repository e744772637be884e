"""Independent calls: the same results in one process and in several, with one thread each."""

import os
import signal
import subprocess
import sys
import time
import warnings

import joblib
import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from selfcal._support.jobs import ATTEMPTS, _Call, _packed, _Unpacker, one_thread, run_calls
from selfcal.errors import WorkerError


def facts(number, array):
    """What a call sees of its process."""
    if number == 1:
        warnings.warn("the second call warns", UserWarning, stacklevel=1)
    threads = {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}
    return number, os.getpid(), threads, float(array.sum()), isinstance(array, np.memmap)


def test_results_are_in_order_and_warnings_arrive():
    array = np.ones(400_000)
    with pytest.warns(UserWarning, match="the second call warns"):
        here = list(run_calls(facts, [(number, array) for number in range(3)]))
    with pytest.warns(UserWarning, match="the second call warns"):
        elsewhere = list(run_calls(facts, [(number, array) for number in range(3)], n_jobs=2))
    for place, (number, _, threads, total, _) in enumerate([*here, *elsewhere]):
        assert (number, threads, total) == (place % 3, {1}, 400_000)
    assert {process for _, process, *_ in here} == {os.getpid()}
    assert os.getpid() not in {process for _, process, *_ in elsewhere}
    assert all(mapped for *_, mapped in elsewhere)  # sent once, not with every call


def test_a_configuration_of_joblib_decides_where_nothing_else_is_said():
    """In threads of one process, which have the filters of warnings and the numbers of threads in common."""
    before, filters = torch.get_num_threads(), list(warnings.filters)
    torch.set_num_threads(2)
    try:
        with joblib.parallel_config("threading", n_jobs=3), pytest.warns(UserWarning, match="warns") as seen:
            found = list(run_calls(facts, [(number % 3, np.ones(3)) for number in range(30)]))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [number for number, *_ in found] == [*range(3)] * 10
    assert {process for _, process, *_ in found} == {os.getpid()}
    assert all(threads == {1} for _, _, threads, *_ in found)
    assert len(seen) == 10
    assert warnings.filters == filters


def fail():
    raise ValueError("as asked")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_is_raised(n_jobs):
    with pytest.raises(ValueError, match="as asked"):
        list(run_calls(fail, [()], n_jobs=n_jobs))


def test_the_number_of_threads_comes_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def stubborn(number, folder, deaths):
    """Call 2 kills its process as often as asked; every call leaves a mark."""
    marks = folder / f"{number}-{len(list(folder.iterdir()))}"
    marks.write_text("")
    if number == 2 and len(list(folder.glob("2-*"))) <= deaths:
        while not list(folder.glob("0-*")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_call_whose_worker_is_killed_is_made_again_and_those_that_ended_are_not(tmp_path):
    assert list(run_calls(stubborn, [(n, tmp_path, 1) for n in range(4)], n_jobs=2)) == [0, 1, 2, 3]
    made = [mark.name[0] for mark in tmp_path.iterdir()]
    assert made.count("2") == 2
    assert made.count("0") == 1


def test_workers_that_die_again_and_again_are_given_up(tmp_path):
    with pytest.raises(WorkerError, match=f"died {ATTEMPTS} times in a row.*fewer processes"):
        list(run_calls(stubborn, [(n, tmp_path, 99) for n in range(3)], n_jobs=2))
    assert len(list(tmp_path.glob("2-*"))) == ATTEMPTS


def test_large_arrays_are_sent_apart_from_the_calls_and_once_for_all_of_them():
    array = np.arange(400_000.0)
    one, other = (_packed(_Call(facts, (number, [array, array]))) for number in range(2))
    assert len(one[0]) < 10_000
    assert [id(sent) for sent in one[1]] == [id(sent) for sent in other[1]] == [id(array)]
    array.flags.writeable = False  # as Dask hands it out
    (number, (first, second)) = _Unpacker(one[0], (array,)).load().arguments
    assert number == 0
    assert first.flags.writeable
    np.testing.assert_array_equal(first, second)


def test_one_thread_for_several_calls_at_a_time():
    """The last one to end restores what the first one found."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_call_that_imports_torch_late_has_one_thread(tmp_path):
    """Torch is not imported for calls that need none of it."""
    script = tmp_path / "late.py"
    script.write_text(
        "import os, sys\n"
        "def threads(late):\n"
        "    if late:\n"
        "        import torch\n"
        "        return torch.get_num_threads()\n"
        "    return 'torch' in sys.modules\n"
        "if __name__ == '__main__':\n"
        "    from selfcal._support.jobs import run_calls\n"
        "    print(list(run_calls(threads, [(0,), (0,), (1,)])), os.environ.get('OMP_NUM_THREADS'))\n"
        "    print(list(run_calls(threads, [(0,), (0,)], n_jobs=2)), 'torch' in sys.modules)\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["[False, False, 1] 2", "[False, False] True"]


def growing(number):
    """The worker, whose memory is 350 MB more from the second call on."""
    time.sleep(1.1)  # joblib looks every second
    if number >= 2:
        globals().setdefault("kept", np.ones(350 * 2**17))
    return os.getpid()


def test_a_worker_that_loads_much_is_not_replaced():
    assert len(set(run_calls(growing, ((number,) for number in range(8)), n_jobs=2))) == 2
