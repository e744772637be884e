import numpy as np
import pytest
import torch

from selfcal import losses, metrics
from selfcal.errors import ConfigError, DataError
from tests.losses.batches import batch_term, rows


@pytest.mark.parametrize("bandwidth", [0.05, 0.4])
def test_mmce_is_the_metric_of_that_name(bandwidth):
    logits, y = rows()
    value = metrics.mmce(y.numpy(), torch.softmax(logits, dim=1).numpy(), bandwidth=bandwidth)
    assert batch_term(losses.mmce, logits, y, bandwidth=bandwidth) == pytest.approx(value)


def test_weighted_mmce_over_all_pairs():
    logits, y = rows()
    probs = torch.softmax(logits, dim=1).numpy()
    c, right = probs.max(axis=1), probs.argmax(axis=1) == y.numpy()
    m, n = len(c), right.sum()
    total = 0.0
    for i in range(m):
        for j in range(m):
            kernel = np.exp(-abs(c[i] - c[j]) / 0.4)
            if right[i] and right[j]:
                total += (1 - c[i]) * (1 - c[j]) * kernel / n**2
            elif not right[i] and not right[j]:
                total += c[i] * c[j] * kernel / (m - n) ** 2
            else:
                total -= (1 - c[i if right[i] else j]) * c[j if right[i] else i] * kernel / (n * (m - n))
    assert batch_term(losses.weighted_mmce, logits, y) == pytest.approx(np.sqrt(total))


@pytest.mark.parametrize("loss", [losses.mmce, losses.weighted_mmce], ids=["mmce", "weighted_mmce"])
class TestBoth:
    def test_a_batch_of_one_has_no_pairs(self, loss):
        with pytest.raises(
            DataError, match=r"needs at least two in a batch; got 1\. Use a larger batch size"
        ):
            loss(torch.zeros(1, 2), torch.tensor([0]))

    def test_right_and_certain_costs_nothing(self, loss):
        assert loss(torch.tensor([[1e4, 0.0], [0.0, 1e4]]), torch.tensor([0, 1])).tolist() == [0.0, 0.0]

    def test_the_kernel_needs_a_width(self, loss):
        with pytest.raises(ConfigError, match="bandwidth must be a number in"):
            loss(*rows(), bandwidth=0.0)
