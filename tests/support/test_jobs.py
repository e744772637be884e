"""Independent calls: the same results in one process and in several, with one thread each."""

import os
import warnings

import joblib
import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from selfcal._support.jobs import one_thread, run_calls


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
