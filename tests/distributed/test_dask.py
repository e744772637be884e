"""The same fit on a Dask cluster of three processes, one of which is killed."""

import os
import signal
import threading
import time

import joblib
import pytest

from distributed import Client, LocalCluster

pytestmark = pytest.mark.filterwarnings("default")  # those of Dask are its own


@pytest.fixture(scope="module")
def client():
    cluster = LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client:
        yield client


def test_a_cluster(client, fit, same):
    with joblib.parallel_config("dask"):
        found = fit()
    same(found)


def test_a_worker_that_is_killed_while_it_trains(client, fit, same):
    before = client.run(os.getpid)
    killed = []

    def kill():
        while True:
            for worker, tasks in client.processing().items():
                if any("_called" in task for task in tasks):
                    time.sleep(0.5)
                    os.kill(before[worker], signal.SIGKILL)
                    killed.append(worker)
                    return
            time.sleep(0.02)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with joblib.parallel_config("dask"):
        found = fit()
    killer.join(timeout=10)
    assert killed
    same(found)
