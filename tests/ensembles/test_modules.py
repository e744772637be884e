"""Several networks as one: each sees its own rows, and they answer by the mean of their probabilities."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from selfcal.ensembles.modules import KEPT, EnsembleModule, NoiseCorrected, ParallelNetworks
from selfcal.errors import ConfigError, DataError
from selfcal.label_noise import transition
from selfcal.training.problem import members_of


def networks(n, n_classes=3):
    torch.manual_seed(0)
    return [
        nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, n_classes))
        for _ in range(n)
    ]


class TestTeam:
    def test_every_network_sees_its_own_rows(self):
        members, x = networks(3), torch.randn(12, 2)
        team = ParallelNetworks(members).eval()
        alone = [member(part) for member, part in zip(members, x.split(4), strict=True)]
        assert torch.equal(team(x), torch.cat(alone))

    def test_gradients_stay_within_a_share(self):
        members = networks(2)
        ParallelNetworks(members).eval()(torch.randn(6, 2))[:3].sum().backward()
        assert all(p.grad.abs().sum() > 0 for p in members[0][-1].parameters())
        assert all(p.grad is None or not p.grad.any() for p in members[1].parameters())

    def test_running_statistics_are_those_of_a_share(self):
        members = networks(2)
        ParallelNetworks(members).train()(torch.cat([torch.zeros(8, 2), torch.randn(8, 2)]))
        assert torch.equal(members[0][1].running_var, torch.full((4,), 0.9))
        assert not torch.equal(members[1][1].running_var, members[0][1].running_var)

    def test_parameters_come_network_by_network(self):
        members = networks(2)
        assert [id(p) for p in ParallelNetworks(members).parameters()] == [
            id(p) for m in members for p in m.parameters()
        ]

    @pytest.mark.parametrize("members", [[], [nn.Linear(2, 3), nn.Linear(2, 4)]])
    def test_networks_of_one_make_alone(self, members):
        with pytest.raises(ConfigError, match=f"the same shapes; got {len(members)} networks of"):
            ParallelNetworks(members)

    def test_anything_else_is_one_network(self):
        members = networks(2)
        assert members_of(ParallelNetworks(members)) == members
        assert members_of(members[0]) == [members[0]]


class TestCommittee:
    def test_the_answer_is_the_weighted_mean(self):
        members, x = networks(3), torch.randn(20, 2)
        weights, temperatures = [1.0, 2.0, 5.0], [0.5, 1.0, 3.0]
        said = EnsembleModule(members, weights, temperatures).eval()(x).detach().numpy()
        alone = [
            softmax(member(x).detach().double().numpy() / temperature, axis=1)
            for member, temperature in zip(members, temperatures, strict=True)
        ]
        np.testing.assert_allclose(
            softmax(said, axis=1), np.average(alone, axis=0, weights=weights), atol=1e-5
        )
        np.testing.assert_allclose(np.exp(said).sum(axis=1), 1, atol=1e-5)

    def test_one_network_says_what_it_would_alone(self):
        (member,), x = networks(1), torch.randn(20, 2)
        member.eval()
        torch.testing.assert_close(EnsembleModule([member])(x), member(x).log_softmax(dim=1))

    def test_very_sure_networks_that_disagree_leave_numbers(self):
        members = networks(2, n_classes=2)
        for member, sign in zip(members, (1.0, -1.0), strict=True):
            nn.init.zeros_(member[-1].weight)
            member[-1].bias.data = torch.tensor([sign, -sign]) * 1e4
        said = EnsembleModule(members).eval()(torch.zeros(1, 2))
        np.testing.assert_allclose(said.softmax(dim=1).detach(), [[0.5, 0.5]])

    def test_weights_and_temperatures_go_with_the_state(self):
        members = networks(2)
        first, second = EnsembleModule(members, [1, 3], [2, 4]), EnsembleModule(members)
        second.load_state_dict(first.state_dict())
        x = torch.randn(5, 2)
        assert torch.equal(first.eval()(x), second.eval()(x))

    @pytest.mark.parametrize(
        ("settings", "error", "message"),
        [
            ({"members": []}, ConfigError, "at least one network; got none"),
            ({"weights": [1.0]}, DataError, "members has 2, weights has 1"),
            ({"temperatures": [1.0] * 3}, DataError, "temperatures has 3"),
            ({"weights": [1.0, 0.0]}, ConfigError, r"weights must be a number in \(0, inf\); got 0"),
            ({"weights": [1.0, np.nan]}, ConfigError, "weights must be"),
            ({"temperatures": [1.0, -1.0]}, ConfigError, "temperatures must be"),
        ],
    )
    def test_bad_settings(self, settings, error, message):
        with pytest.raises(error, match=message):
            EnsembleModule(**{"members": networks(2), **settings})


class TestDenoised:
    MATRIX = np.linalg.inv([[0.6, 0.4], [0.3, 0.7]])

    def answer(self, logits, power):
        """What is made of a network that says `logits`."""
        answering = NoiseCorrected(nn.Identity(), torch.from_numpy(self.MATRIX).float(), power)
        return answering(torch.tensor(logits, dtype=torch.float32))

    def test_it_is_the_undone_noise_and_a_little_of_the_answer_itself(self):
        logits = np.random.default_rng(0).normal(size=(20, 2))
        said = softmax(logits, axis=1)
        expected = (1 - KEPT) * transition.noise_corrected(said, self.MATRIX, 1.7) + KEPT * said
        np.testing.assert_allclose(self.answer(logits, 1.7).exp(), expected, atol=1e-5)

    @pytest.mark.parametrize("size", [1.0, 1e3, 1e30])
    def test_no_answer_is_surer_than_the_network_lets_it_be(self, size):
        """A power of twelve would leave 1e-36 of the other class, or nothing."""
        logits = np.array([[0.4, -0.4], [-0.1, 0.1]]) * size
        answer = self.answer(logits, 12.0)
        assert answer.isfinite().all()
        least = np.log(KEPT) + log_softmax(logits, axis=1)
        assert (answer.numpy() >= least - 1e-5 * np.abs(least)).all()
