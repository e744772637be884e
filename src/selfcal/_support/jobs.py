"""Independent calls by joblib: in this process, in several, or on a cluster that the user has configured."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits

T = TypeVar("T")


def run_calls(
    function: Callable[..., T], calls: Iterable[tuple[Any, ...]], *, n_jobs: int | None = None
) -> Iterator[T]:
    """The results of a function for several tuples of arguments, in their order, as they become available.

    Each call has one thread, wherever it runs: the bits of a result depend on the number of threads, and so do not
    depend on `n_jobs`. Large NumPy arrays among the arguments are sent to other processes once, as memory maps.

    Args:
        function: The function; with several processes it must be found by its name.
        calls: The arguments of each call; taken when there is a process for it, or soon before.
        n_jobs: Number of processes, as in scikit-learn: None is one, unless a `joblib.parallel_config` says
            otherwise, and -1 as many as there are processors.

    Example:
        >>> list(run_calls(divmod, [(7, 2), (9, 3)]))
        [(3, 1), (3, 0)]
    """
    if effective_n_jobs(n_jobs) == 1:
        for arguments in calls:
            with one_thread():
                result = function(*arguments)
            yield result
        return
    tasks = (delayed(_called)(function, arguments, os.getpid()) for arguments in calls)
    with one_thread():
        outcomes = Parallel(n_jobs=n_jobs, mmap_mode="c", pre_dispatch="n_jobs", return_as="generator")(tasks)
        for result, caught in outcomes:
            for warning in caught:
                warnings.warn(warning, stacklevel=2)
            yield result


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which torch and the libraries behind NumPy and scikit-learn use one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _called(
    function: Callable[..., T], arguments: tuple[Any, ...], caller: int
) -> tuple[T, list[Warning | str]]:
    """The result in a worker, and its warnings, which would be lost in another process than the caller's."""
    if os.getpid() == caller:  # a thread: what is common to all of them, the caller restores
        torch.set_num_threads(1)
        threadpool_limits(1)
        return function(*arguments), []
    with warnings.catch_warnings(record=True) as caught, one_thread():
        warnings.simplefilter("always")
        result = function(*arguments)
    return result, [warning.message for warning in caught]
