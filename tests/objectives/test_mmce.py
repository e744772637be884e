import numpy as np
import pytest
import torch

from selfcal import metrics
from selfcal.errors import ConfigError
from selfcal.objectives import MMCE
from tests.objectives.batches import rows, value


@pytest.mark.parametrize("bandwidth", [0.05, 0.4])
@pytest.mark.parametrize("weighted", [False, True])
def test_is_the_metric_of_that_name(bandwidth, weighted):
    logits, y = rows()
    weight = np.random.default_rng(0).uniform(0, 3, len(y)) if weighted else np.ones(len(y))
    expected = metrics.mmce(
        y.numpy(), torch.softmax(logits, dim=1).numpy(), bandwidth=bandwidth, sample_weight=weight
    )
    got = value(MMCE(bandwidth=bandwidth), logits, y, torch.from_numpy(weight))
    assert got.item() == pytest.approx(expected)


def test_two_rows_by_hand():
    """Confidences 3/4, right, and 1/2, wrong: residuals 1/4 and -1/2."""
    logits = torch.tensor([[np.log(3.0), 0.0], [0.0, 0.0]], dtype=torch.float64)
    got = value(MMCE(bandwidth=0.25), logits, torch.tensor([0, 1])).item()
    assert got == pytest.approx(np.sqrt(0.25**2 + 0.5**2 - 2 * 0.25 * 0.5 * np.exp(-1)) / 2)


def test_the_kernel_needs_a_width():
    with pytest.raises(ConfigError, match="bandwidth must be a number in"):
        MMCE(bandwidth=0.0)
