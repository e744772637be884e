from torch import nn

from selfcal.ensembles.settings import expected_seconds
from selfcal.models.batch_ensemble import BatchEnsembleLinear


def test_expected_seconds_grow_with_everything():
    base = expected_seconds(nn.Linear(9, 2), 1024, 5)
    assert expected_seconds(nn.Linear(9, 2), 2048, 5) == 2 * base
    assert expected_seconds(nn.Linear(9, 2), 1024, 10) == 2 * base
    assert expected_seconds(nn.Linear(19, 2), 1024, 5) > base


def test_every_member_multiplies_with_the_weights_they_share():
    few, many = (expected_seconds(BatchEnsembleLinear(k, 900, 800), 10**6, 1) for k in (1, 16))
    assert 15 < many / few < 16.1
