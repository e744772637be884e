import signal

import pytest
import torch

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background, which processes inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The networks here are small: a second thread costs more than it brings, and the runner uses both cores."""
    torch.set_num_threads(1)
