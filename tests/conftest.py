import signal
from contextlib import suppress

import pytest
from hypothesis import settings

# The same examples on every run, and no deadline: a busy machine must not fail a property.
settings.register_profile("quick", deadline=None, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("quick")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background, which processes inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The networks here are small: a second thread costs more than it brings, and the runner uses both cores."""
    with suppress(ModuleNotFoundError):  # what works without torch is tested without it, too
        import torch

        torch.set_num_threads(1)
