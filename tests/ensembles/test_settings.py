from torch import nn

from selfcal.ensembles.settings import expected_seconds


def test_expected_seconds_grow_with_everything():
    base = expected_seconds(nn.Linear(9, 2), 1024, 5)
    assert expected_seconds(nn.Linear(9, 2), 2048, 5) == 2 * base
    assert expected_seconds(nn.Linear(9, 2), 1024, 10) == 2 * base
    assert expected_seconds(nn.Linear(19, 2), 1024, 5) > base
