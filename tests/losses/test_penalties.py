import numpy as np
import pytest
import torch

from selfcal import losses
from selfcal.errors import ConfigError

LOGITS = torch.tensor([[3.0, -4.0, 0.0], [1.0, 2.0, -2.0]], dtype=torch.float64)
Y = torch.tensor([0, 2])


@pytest.mark.parametrize(("p", "norms"), [(1.0, [7.0, 5.0]), (2.0, [5.0, 3.0]), (1.5, None)])
def test_norm_of_the_logits(p, norms):
    if norms is None:
        norms = np.linalg.norm(LOGITS.numpy(), ord=p, axis=1)
    penalty = losses.lp_norm(LOGITS, Y, alpha=0.1, p=p) - losses.cross_entropy(LOGITS, Y)
    np.testing.assert_allclose(penalty, 0.1 * np.asarray(norms))


def test_below_one_it_is_no_norm():
    with pytest.raises(ConfigError, match=r"p must be a number in \[1, inf\); got 0.5"):
        losses.lp_norm(LOGITS, Y, p=0.5)


def test_entropy_of_the_probabilities():
    from scipy.stats import entropy

    reward = losses.cross_entropy(LOGITS, Y) - losses.entropy_regularized(LOGITS, Y, alpha=0.3)
    np.testing.assert_allclose(reward, 0.3 * entropy(torch.softmax(LOGITS, dim=1).numpy(), axis=1))
