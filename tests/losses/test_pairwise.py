import numpy as np
import pytest
import torch

from selfcal import losses


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.3, 0.0), (0.0, 2.0)])
def test_by_loops_over_the_pairs(alpha, beta):
    z, label = [0.2, -1.0, 0.7, 1.5], 2
    discrimination = [-np.log(sigmoid(z[label] - z[j])) for j in (0, 1, 3)]
    exclusion = [-np.log(q) / 2 - np.log(1 - q) / 2 for q in (sigmoid(z[0] - z[1]), sigmoid(z[0] - z[3]))]
    exclusion.append(-np.log(sigmoid(z[1] - z[3])) / 2 - np.log(sigmoid(z[3] - z[1])) / 2)
    cross_entropy = np.log(np.exp(z).sum()) - z[label]
    value = losses.cpc(torch.tensor([z]).double(), torch.tensor([label]), alpha=alpha, beta=beta).item()
    # 3 of the 4 classes are not the label; they are in 3 pairs, 6 ordered ones
    expected = cross_entropy + alpha * sum(discrimination) / 3 + beta * sum(exclusion) / 6
    assert value == pytest.approx(expected, rel=1e-6)  # the logits were single-precision


def test_two_classes_have_no_pair_without_the_label():
    logits, y = torch.tensor([[0.3, -1.0], [2.0, 0.5]]).double(), torch.tensor([0, 1])
    plain = losses.cross_entropy(logits, y)
    torch.testing.assert_close(losses.cpc(logits, y, alpha=0.5, beta=7.0), 1.5 * plain)


def test_exclusion_is_least_where_the_other_classes_are_equal():
    y = torch.tensor([0])
    equal, apart = (torch.tensor([[1.0, *others]]).double() for others in ((0.0, 0.0), (0.5, -0.5)))
    only = [losses.cpc(z, y, beta=1.0) - losses.cpc(z, y, beta=0.0) for z in (equal, apart)]
    assert only[0].item() == pytest.approx(np.log(2) / 2)
    assert only[1] > only[0]
