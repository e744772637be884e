import pytest

from selfcal.workflows.inspection import tried


def record(**changes):
    whole = {"network": "mlp", "out_of_fold_log_loss": 0.51234, "weight": 0.41, "networks": 5, "planned": 5}
    return {**whole, "out_of_time": False, **changes}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "weight 41%; out-of-fold log loss 0.5123, 5 of 5 members"),
        ({"networks": 1, "planned": 1}, "weight 41%; out-of-fold log loss 0.5123, 1 of 1 member"),
        (
            {"networks": 2, "out_of_time": True},
            "weight 41%; out-of-fold log loss 0.5123, 2 of 5 members, stopped by the time budget",
        ),
        ({"out_of_fold_log_loss": None}, "not trained: the time budget was used up"),
    ],
)
def test_a_line_for_each_candidate(changes, line):
    assert tried([record(**changes)]) == {"candidate 'mlp'": line}


def test_a_single_network_has_no_candidates():
    assert tried([]) == {}
