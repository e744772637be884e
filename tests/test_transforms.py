import pytest
import torch
from torch import nn

from selfcal import Batch, BilevelStep, Recipe, SelfCalibratedClassifier, losses, recipes, transforms
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError
from selfcal.optimizers import SGD
from selfcal.transforms import Mixup


def rows(n=8):
    return Batch(torch.eye(n), torch.arange(n), torch.arange(n), torch.arange(1.0, n + 1))


def test_rows_are_mixed_in_pairs_with_labels_and_weights_to_match():
    torch.manual_seed(0)
    mixed = Mixup(alpha=1.0)(rows())
    share, other = float(mixed.hyper["share"]), mixed.hyper["other"]
    assert 0 < share < 1
    assert sorted(other.tolist()) == list(range(8))
    expected = share * torch.eye(8) + (1 - share) * torch.eye(8)[other]
    torch.testing.assert_close(mixed.x, expected)
    torch.testing.assert_close(mixed.weight, share * rows().weight + (1 - share) * rows().weight[other])
    assert torch.equal(mixed.index, rows().index)


def test_mixing_weights_follow_the_beta_distribution():
    torch.manual_seed(0)
    for alpha, variance in ((1.0, 1 / 12), (0.2, 0.25 / 1.4)):
        shares = torch.tensor([float(Mixup(alpha)(rows(2)).hyper["share"]) for _ in range(2000)])
        assert float(shares.mean()) == pytest.approx(0.5, abs=0.03)
        assert float(shares.var()) == pytest.approx(variance, rel=0.1)


def test_the_loss_is_that_of_both_labels():
    logits, y, other = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]), torch.tensor([1, 1, 0, 2, 2])
    targets = 0.3 * nn.functional.one_hot(y, 3) + 0.7 * nn.functional.one_hot(other, 3)
    expected = nn.functional.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(losses.mixed_cross_entropy(logits, y, other=other, share=0.3), expected)
    torch.testing.assert_close(losses.mixed_cross_entropy(logits, y), losses.cross_entropy(logits, y))


def test_training_sees_the_mixed_rows_and_is_the_same_for_the_same_seed():
    X, y = Blobs(std=1.7).sample(200, seed=0)
    first, second, plain = (
        SelfCalibratedClassifier(method, max_epochs=20, random_state=0).fit(X, y).logits(X)
        for method in ("mixup", "mixup", "standard")
    )
    assert (first == second).all()
    assert not (first == plain).all()


def test_a_loss_without_the_keywords_of_the_transform():
    with pytest.raises(ConfigError, match="provide other, share; the loss accepts penalty, weight"):
        Recipe(name="odd", loss=losses.cross_entropy, transform=Mixup())
    with pytest.raises(ConfigError, match="transform must be a BatchTransform object"):
        Recipe(name="odd", loss=losses.cross_entropy, transform="mixup")
    with pytest.raises(ConfigError, match="alpha"):
        Mixup(alpha=0)


def test_a_batch_of_one_is_mixed_with_itself():
    step = BilevelStep(nn.Linear(3, 2), SGD(lr=0.1), recipes.mixup(), n_train=1)
    assert step((torch.ones(1, 3), torch.tensor([1]))).inner_loss > 0
    assert transforms.Mixup in Mixup.__mro__
