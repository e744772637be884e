"""Independent calls by joblib: in this process, in several, or on a cluster that the user has configured."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from itertools import chain
from multiprocessing.util import Finalize
from typing import Any, NamedTuple, TypeVar

import numpy as np
from cloudpickle import CloudPickler
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.externals.loky import process_executor, reusable_executor
from joblib.externals.loky.backend import resource_tracker
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from selfcal._support.signals import starting_workers
from selfcal.errors import WorkerError

T = TypeVar("T")

ATTEMPTS = 3
"""How many times in a row workers may die without finishing any call."""
LARGE = 2**20
"""Bytes of an array from which on it is sent to workers apart from the call, and once for all calls."""
LOST = (BrokenProcessPool, CancelledError)
"""What a call raises whose worker died: in processes of this machine, and on a Dask cluster with data of the call."""
POLL_SECONDS = 1.0
"""How often a worker looks whether the process that started it is still there."""


def run_calls(
    function: Callable[..., T], calls: Iterable[tuple[Any, ...]], *, n_jobs: int | None = None
) -> Iterator[T]:
    """The results of a function for several tuples of arguments, in their order, as they become available.

    Each call has one thread, wherever it runs: the bits of a result depend on the number of threads, and so do not
    depend on `n_jobs`. A call whose worker dies is made again, in another one.

    Args:
        function: The function.
        calls: The arguments of each call; taken when there is a worker for it, or soon before.
        n_jobs: Number of processes, as in scikit-learn: None is one, unless a `joblib.parallel_config` says
            otherwise, and -1 as many as there are processors.

    Raises:
        WorkerError: Workers died `ATTEMPTS` times in a row without finishing any call.

    Example:
        >>> list(run_calls(divmod, [(7, 2), (9, 3)]))
        [(3, 1), (3, 0)]
    """
    early: dict[int, T] = {}
    wanted = 0
    with closing(completed_calls(function, calls, n_jobs=n_jobs)) as completed:
        for place, result in completed:
            early[place] = result
            while wanted in early:
                yield early.pop(wanted)
                wanted += 1


def completed_calls(
    function: Callable[..., T],
    calls: Iterable[tuple[Any, ...]],
    *,
    n_jobs: int | None = None,
    isolated: bool = False,
    attempts: int = ATTEMPTS,
) -> Generator[tuple[int, T], None, None]:
    """Like `run_calls`, in the order in which the calls end, each result with the number of its call.

    Args:
        function: The function.
        calls: The arguments of each call.
        n_jobs: Number of processes, as in `run_calls`.
        isolated: Make the calls in another process even if one at a time, so that this one outlives them.
        attempts: How many times in a row workers may die without finishing any call.
    """
    if not isolated and effective_n_jobs(n_jobs) == 1:
        for place, arguments in enumerate(calls):
            with one_thread():
                result = function(*arguments)
            yield place, result
        return
    numbered, unfinished = enumerate(calls), dict[int, tuple[Any, ...]]()
    shared = getattr(get_active_backend()[0], "supports_sharedmem", False)
    left = attempts

    def tasks() -> Iterator[Any]:
        for place, arguments in chain(sorted(unfinished.items()), numbered):
            unfinished[place] = arguments
            call = _Call(function, arguments)
            packed, arrays = (call, []) if shared else _packed(call)
            yield delayed(_called)(packed, place, _this_process(), *arrays)

    while True:
        try:
            with closing(_outcomes(tasks(), n_jobs, isolated)) as outcomes:
                for place, result, caught in outcomes:
                    if isinstance(result, _Failed):  # after what ended before it, which joblib would drop
                        raise result.error
                    del unfinished[place]
                    left = attempts
                    for warning in caught:
                        warnings.warn(warning, stacklevel=2)
                    yield place, result
            return
        except LOST as error:
            left -= 1
            if not left:
                raise WorkerError(
                    f"Worker processes must survive their work; they died {attempts} times in a row, perhaps for "
                    "lack of memory. Use fewer processes (n_jobs, or --jobs), or a machine with more memory."
                ) from error


def _outcomes(tasks: Iterator[Any], n_jobs: int | None, isolated: bool) -> Generator[Any, None, None]:
    """The outcomes of joblib's tasks, in the order in which they end; closing it ends the workers."""
    one_by_one = isolated and n_jobs == 1  # joblib makes the calls of a single worker in this process
    common = {
        "n_jobs": 2 if one_by_one else n_jobs,
        "mmap_mode": "c",
        "batch_size": 1,
        "pre_dispatch": 1 if one_by_one else "n_jobs",
    }
    _start_tracker()
    with one_thread():
        if not getattr(get_active_backend()[0], "supports_return_generator", False):  # multiprocessing
            yield from Parallel(**common)(tasks)
            return
        with starting_workers():
            outcomes = Parallel(**common, return_as="generator_unordered")(tasks)
        Finalize(None, end_idle_workers, exitpriority=100)
        try:
            yield from outcomes
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib's, that tasks were given up
                outcomes.close()


class _Threads:
    """The numbers of threads before this process made calls, and how many calls it makes now."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = 0
        self.restore: Callable[[], None] = lambda: None


_THREADS = _Threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which torch and the libraries behind NumPy and scikit-learn use one thread.

    The numbers are those of a process: the last one of several calls at the same time restores them.
    """
    with _THREADS.lock:
        restore = _limited_threads()
        if not _THREADS.calls:
            _THREADS.restore = restore
        _THREADS.calls += 1
    try:
        yield
    finally:
        with _THREADS.lock:
            _THREADS.calls -= 1
            if not _THREADS.calls:
                _THREADS.restore()


def _limited_threads() -> Callable[[], None]:
    """Set the number of threads to one; returns what restores it."""
    torch, in_environment = sys.modules.get("torch"), os.environ.get("OMP_NUM_THREADS")
    n_threads = torch and torch.get_num_threads()  # before they are limited, since it counts those of OpenMP
    limits = threadpool_limits(1)
    if torch:
        torch.set_num_threads(1)
    else:  # importing it takes seconds; a call that does so gets as many threads as the environment says
        os.environ["OMP_NUM_THREADS"] = "1"

    def restore() -> None:
        limits.restore_original_limits()
        if torch:
            torch.set_num_threads(n_threads)
        elif in_environment is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = in_environment

    return restore


class _Call(NamedTuple):
    """A function and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Failed(NamedTuple):
    """The error that a call raised."""

    error: Exception


def _tried(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return _Failed(error)


class _Packer(CloudPickler):
    """Writes a call without its large arrays, which joblib sends once: as memory maps, or scattered on a cluster."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.arrays: dict[int, NDArray[Any]] = {}

    def persistent_id(self, value: Any) -> int | None:
        """The number of a large array."""
        if type(value) not in (np.ndarray, np.memmap) or value.nbytes < LARGE or value.dtype.hasobject:
            return None
        self.arrays.setdefault(id(value), value)
        return list(self.arrays).index(id(value))


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: bytes, arrays: tuple[NDArray[Any], ...]) -> None:
        super().__init__(io.BytesIO(packed))
        self.arrays = arrays

    def persistent_load(self, number: int) -> NDArray[Any]:
        """The array of this number; torch wants one that can be written to."""
        array = self.arrays[number]
        return array if array.flags.writeable else array.copy()


def _packed(call: _Call) -> tuple[bytes, list[NDArray[Any]]]:
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(call)
    return file.getvalue(), list(packer.arrays.values())


def _this_process() -> tuple[str, int]:
    return platform.node(), os.getpid()


def _called(
    call: _Call | bytes, place: int, caller: tuple[str, int], *arrays: NDArray[Any]
) -> tuple[int, Any, list[Warning | str]]:
    """The result in a worker, and its warnings, which would be lost in another process than the caller's.

    Calls inside it are made one after the other, unless they ask for more processes themselves.
    """
    alone = threading.current_thread() is threading.main_thread()  # processes cannot be started below threads
    with one_thread(), parallel_config("loky" if alone else "threading", n_jobs=1):
        elsewhere = _this_process() != caller
        if elsewhere:
            _end_with(caller)
            # a worker that loads torch, or more rows, is no leak: it would be replaced, and load them again
            process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize
        function, arguments = call if isinstance(call, _Call) else _Unpacker(call, arrays).load()
        if not elsewhere or _THREADS.calls > 1:  # the filters of warnings are common to all threads
            return place, _tried(function, arguments), []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = _tried(function, arguments)
    return place, result, [warning.message for warning in caught]


_WATCHED = set[tuple[str, int]]()


def _end_with(caller: tuple[str, int]) -> None:
    """End this worker when the process that started it is killed, which would leave it waiting for work."""
    parent = os.getppid()
    if caller != (platform.node(), parent) or caller in _WATCHED:
        return
    _WATCHED.add(caller)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_idle_workers() -> None:
    """End joblib's workers before this process waits for them: they wait for more work for five minutes."""
    executor = reusable_executor._executor
    if executor is not None and any(child.is_alive() for child in multiprocessing.active_children()):
        executor.shutdown(wait=True, kill_workers=True)


def _start_tracker() -> None:
    """Start the process that frees resources of workers, without its warning about workers that were stopped."""
    before = os.environ.get("PYTHONWARNINGS")
    quiet = "ignore:resource_tracker:UserWarning"
    os.environ["PYTHONWARNINGS"] = quiet if not before else f"{before},{quiet}"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before
