import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The networks here are small: a second thread costs more than it brings, and the runner uses both cores."""
    torch.set_num_threads(1)
