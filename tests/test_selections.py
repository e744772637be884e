import pytest
import torch

from selfcal.errors import ConfigError
from selfcal.selections import DynamicPruning
from selfcal.training import Batch, Output


def seen(rule, state, rows, probs):
    """Let the rule see two-class predictions with these probabilities of the first class."""
    first = torch.tensor(probs, dtype=torch.float64)
    logits = torch.stack([first, 1 - first], dim=1).log()
    rows = torch.tensor(rows)
    rule.observe(state, Output(logits), Batch(logits, torch.zeros(len(rows)), rows))


def test_the_importance_is_a_moving_average_of_the_confidence():
    rule = DynamicPruning(momentum=0.3)
    state = rule.init(3)
    seen(rule, state, [0, 2], [0.8, 0.1])
    assert state["importance"].tolist() == pytest.approx([0.8, torch.inf, 0.9])
    seen(rule, state, [2], [0.6])
    assert state["importance"].tolist() == pytest.approx([0.8, torch.inf, 0.3 * 0.6 + 0.7 * 0.9])


def test_of_members_the_confidence_is_that_of_the_mean():
    rule, probs = DynamicPruning(), torch.tensor([[[0.9, 0.1], [0.3, 0.7]]])
    state = rule.init(1)
    rule.observe(state, Output(probs.log()), Batch(probs[:, 0], torch.zeros(1), torch.zeros(1).long()))
    assert state["importance"].item() == pytest.approx(0.6)


def test_rows_leave_every_few_passes_until_a_fraction_is_left():
    rule = DynamicPruning(fraction=0.25, every=2, least=0.5)
    state, kept, remaining = rule.init(10), torch.ones(10, dtype=torch.bool), []
    seen(rule, state, range(10), [0.50, 0.95, 0.55, 0.9, 0.6, 0.85, 0.65, 0.8, 0.7, 0.75])
    for number in range(1, 9):
        kept = rule.keep(state, kept, number)
        remaining.append(kept.nonzero()[:, 0].tolist())
    first, second, third = [1, 3, 4, 5, 6, 7, 8, 9], [1, 3, 5, 7, 8, 9], [1, 3, 5, 7, 9]
    assert remaining == [[*range(10)], first, first, second, second, third, third, third]


def test_rows_that_were_never_seen_stay_and_ties_leave_in_order():
    rule = DynamicPruning(fraction=0.5, every=1, least=0.1)
    state, every = rule.init(6), torch.ones(6, dtype=torch.bool)
    assert rule.keep(state, every, 1).all()
    seen(rule, state, [1, 3, 4, 5], [0.7, 0.7, 0.7, 0.7])
    assert rule.keep(state, every, 1).tolist() == [True, False, True, False, False, True]
    assert every.all()


def test_one_row_never_leaves():
    rule = DynamicPruning(fraction=1.0, every=1, least=0.1)
    state = rule.init(1)
    seen(rule, state, [0], [0.5])
    assert rule.keep(state, torch.ones(1, dtype=torch.bool), 1).tolist() == [True]


@pytest.mark.parametrize("name", ["fraction", "every", "momentum", "least"])
def test_settings_out_of_range(name):
    with pytest.raises(ConfigError, match=f"{name} must be"):
        DynamicPruning(**{name: 0})
