import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from selfcal.label_noise import transition
from selfcal.label_noise.corrected import KEPT, NoiseCorrected

MATRIX = np.linalg.inv([[0.6, 0.4], [0.3, 0.7]])


def answer(logits, power):
    """The corrected logits of a network that returns `logits`."""
    answering = NoiseCorrected(nn.Identity(), torch.from_numpy(MATRIX).float(), power)
    return answering(torch.tensor(logits, dtype=torch.float32))


def test_it_is_the_undone_noise_and_a_little_of_the_answer_itself():
    logits = np.random.default_rng(0).normal(size=(20, 2))
    said = softmax(logits, axis=1)
    expected = (1 - KEPT) * transition.noise_corrected(said, MATRIX, 1.7) + KEPT * said
    np.testing.assert_allclose(answer(logits, 1.7).exp(), expected, atol=1e-5)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e30])
def test_no_answer_is_surer_than_the_network_lets_it_be(size):
    """A power of twelve would leave 1e-36 of the other class, or nothing."""
    logits = np.array([[0.4, -0.4], [-0.1, 0.1]]) * size
    said = answer(logits, 12.0)
    assert said.isfinite().all()
    least = np.log(KEPT) + log_softmax(logits, axis=1)
    assert (said.numpy() >= least - 1e-5 * np.abs(least)).all()
