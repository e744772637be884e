"""Races between candidates whose votes are known beforehand: who goes on, who counts, and by how much."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import nn

from selfcal import recipes
from selfcal.ensembles.folds import CrossFit
from selfcal.ensembles.selection import (
    LEAST_WEIGHT,
    expected_seconds,
    left_out,
    mean_loss,
    mixture_weights,
    race,
)
from selfcal.ensembles.training import TrainedMembers
from selfcal.training.recipe import Candidate

N, FOLDS = 120, 5
Y = np.arange(N) % 3
SHARES = CrossFit(FOLDS).splits(Y, seed=0)


def logits_of(skill, seed=0):
    """What a candidate says: the more skill, the nearer to the label."""
    rng = np.random.default_rng(seed)
    return skill * np.eye(3)[Y] + rng.normal(size=(N, 3))


class Stable:
    """Trains nobody: gives the votes of candidates that are known beforehand, and notes who was asked for what."""

    def __init__(self, seconds=1.0, status="stopped early", **votes):
        self.votes, self.seconds, self.status, self.calls = votes, seconds, status, []

    def __call__(self, candidate, members, limit):
        self.calls.append((candidate.network, list(members), limit))
        votes = np.full((1, N, 3), np.nan)
        held_out = np.concatenate([SHARES[member].held_out for member in members])
        votes[0, held_out] = self.votes[candidate.network][held_out]
        result = SimpleNamespace(
            seconds=self.seconds * len(members), network=candidate.network, status=self.status
        )
        return TrainedMembers([nn.Linear(1, 3) for _ in members], votes, result)

    def race(self, **settings):
        candidates = [Candidate(name, recipes.crossfit()) for name in self.votes]
        return race(candidates, FOLDS, self, Y, **settings)

    def asked(self):
        """How many networks each candidate was asked for."""
        return {name: sum(len(members) for n, members, _ in self.calls if n == name) for name in self.votes}


def records(winner):
    return {record["network"]: record for record in winner.selection}


class TestRace:
    def test_with_time_enough_all_run_to_the_end(self):
        stable = Stable(a=logits_of(0.1), b=logits_of(2, 1), c=logits_of(1, 2))
        winner = stable.race(costs=[1, 1, 1], budget=100)
        assert [call[1] for call in stable.calls] == [[0, 1, 2, 3, 4]] * 3
        assert not np.isnan(winner.probs).any()

    @pytest.mark.parametrize(
        ("status", "budget", "expected"),
        [
            ("stopped early", 100, []),
            (
                "out of time",
                100,
                ["'a' was trained for a shorter time", "'b' was trained for a shorter time"],
            ),
            ("stopped early", 6, ["'a' has 3 of 5 networks", "'b' has 3 of 5 networks"]),
            ("stopped early", 0.5, ["'a' has 1 of 5 networks", "'b' was not trained"]),
        ],
    )
    def test_what_the_budget_left_out_is_told(self, status, budget, expected):
        stable = Stable(a=logits_of(2), b=logits_of(0.1, 1), status=status)
        winner = stable.race(costs=[5, 5], budget=budget)
        told = left_out(winner.selection, budget)
        assert told.count(";") == max(0, len(expected) - 1)
        assert all(part in told for part in expected)
        assert bool(told) == bool(expected)
        assert ("speed of this machine" in told) == (status == "out of time" or budget < 1)

    @pytest.mark.parametrize("skills", [(0.1, 2, 1), (2, 1, 0.1), (1, 0.1, 2)])
    def test_the_answer_is_no_worse_than_any_candidate_on_rows_held_out(self, skills):
        stable = Stable(**{f"c{i}": logits_of(skill, i) for i, skill in enumerate(skills)})
        winner = stable.race()
        assert (
            mean_loss(winner.probs, Y, None)
            <= min(r["out_of_fold_log_loss"] for r in winner.selection) + 1e-12
        )

    @settings(deadline=None, max_examples=20)
    @given(seed=st.integers(0, 999), n=st.integers(1, 5))
    def test_the_answer_is_no_worse_whatever_was_said(self, seed, n):
        rng = np.random.default_rng(seed)
        stable = Stable(
            **{f"c{i}": logits_of(rng.uniform(-1, 4), seed + i) * rng.uniform(0.1, 5) for i in range(n)}
        )
        weight = rng.exponential(size=N)
        winner = stable.race(weight=weight)
        least = min(record["out_of_fold_log_loss"] for record in winner.selection)
        assert mean_loss(winner.probs, Y, weight) <= least + 1e-12
        weights = [record["weight"] for record in winner.selection]
        assert sum(weights) == pytest.approx(1)
        assert weights == sorted(weights, reverse=True)
        assert all(w == 0 or w >= LEAST_WEIGHT for w in weights)

    def test_a_race_that_may_take_too_long_halves_the_field(self):
        stable = Stable(
            **{
                name: logits_of(skill, i)
                for i, (name, skill) in enumerate(zip("abcde", range(5), strict=True))
            }
        )
        winner = stable.race(costs=[10.0] * 5, budget=49)
        assert stable.asked() == {"a": 5, "b": 1, "c": 1, "d": 3, "e": 5}
        assert [members for name, members, _ in stable.calls if name == "e"] == [[0], [1, 2], [3, 4]]
        found = records(winner)
        assert {name: found[name]["networks"] for name in "abcde"} == stable.asked()
        assert {name for name in "abcde" if found[name]["weight"]} <= {"a", "e"}

    def test_nobody_starves_in_a_race_by_halving(self):
        """Five first networks, two more of three candidates and of two; each may take thrice its share."""
        stable = Stable(0.0, **{name: logits_of(skill) for skill, name in enumerate("abcde")})
        stable.race(
            costs=[1000.0] * 5, budget=4500
        )  # seconds: that this takes some itself is nothing beside it
        left = 15
        for _, members, limit in stable.calls:
            assert limit == pytest.approx(min(3 * 4500 * len(members) / left, 4500), rel=0.05)
            left -= len(members)
        assert left == 0

    def test_the_first_is_never_left_behind(self):
        stable = Stable(0.0, first=logits_of(-3), b=logits_of(3, 1), c=logits_of(3, 2), d=logits_of(3, 3))
        stable.race(costs=[1.0] * 4, budget=2)
        assert stable.asked()["first"] == FOLDS

    def test_who_goes_on_does_not_depend_on_the_clock(self):
        def asked(seconds):
            stable = Stable(seconds, a=logits_of(1), b=logits_of(2, 1), c=logits_of(3, 2), d=logits_of(0, 3))
            stable.race(costs=[100.0] * 4, budget=300)
            return stable.asked()

        assert asked(0.0) == asked(1.0)

    def test_nobody_starts_without_time(self):
        stable = Stable(10.0, a=logits_of(1), b=logits_of(3, 1), c=logits_of(2, 2))
        winner = stable.race(costs=[0.0] * 3, budget=60)
        assert stable.asked() == {"a": 5, "b": 5, "c": 0}
        assert [limit for _, _, limit in stable.calls] == [60, 10]
        missed = records(winner)["c"]
        assert (missed["networks"], missed["out_of_fold_log_loss"], missed["weight"]) == (0, None, 0.0)

    def test_a_race_cut_short_answers_with_what_there_is(self):
        stable = Stable(10.0, a=logits_of(1), b=logits_of(3, 1))
        winner = stable.race(costs=[50.0] * 2, budget=5)
        assert stable.asked() == {"a": 1, "b": 0}
        assert len(winner.committee.members) == 1
        np.testing.assert_array_equal(np.flatnonzero(~np.isnan(winner.probs[:, 0])), SHARES[0].held_out)

    def test_a_single_candidate_is_the_answer(self):
        stable = Stable(only=logits_of(1))
        (record,) = stable.race().selection
        assert (record["weight"], record["networks"], record["seconds"]) == (1.0, FOLDS, 5.0)

    def test_twins_share_the_weight(self):
        stable = Stable(a=logits_of(1), b=logits_of(1), bad=logits_of(-2))
        found = records(stable.race())
        assert found["a"]["weight"] == found["b"]["weight"] == pytest.approx(0.5)
        assert found["bad"]["weight"] == 0

    def test_members_count_as_their_candidate_does(self):
        stable = Stable(a=3 * logits_of(1), b=logits_of(1.2, 1))
        winner = stable.race()
        committee, weights = winner.committee, winner.committee.log_weights.exp()
        for place, record in enumerate(r for r in winner.selection if r["weight"]):
            own = slice(FOLDS * place, FOLDS * (place + 1))
            assert float(weights[own].sum()) == pytest.approx(record["weight"])
            np.testing.assert_allclose(committee.temperatures[own], record["temperature"])
        assert winner.result.network == winner.selection[0]["network"]

    def test_temperature_mends_a_candidate_that_is_too_sure(self):
        found = records(Stable(sure=5 * log_softmax(logits_of(1), axis=1)).race())["sure"]
        assert found["temperature"] > 2


class TestMixtureWeights:
    @settings(deadline=None, max_examples=30)
    @given(seed=st.integers(0, 999), n=st.integers(2, 4), weighted=st.booleans())
    def test_as_low_as_a_general_optimiser_gets(self, seed, n, weighted):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet([1, 1, 1], size=(n, 80))
        y, weight = rng.integers(3, size=80), rng.exponential(size=80) if weighted else None
        likelihood = probs[:, np.arange(80), y]

        def loss(shares):
            return -np.average(np.log(shares @ likelihood), weights=weight)

        best = minimize(
            lambda z: loss(np.exp(z - z.max()) / np.exp(z - z.max()).sum()), np.zeros(n), method="BFGS"
        )
        found = mixture_weights(list(probs), y, weight)
        assert found.sum() == pytest.approx(1)
        assert (found >= 0).all()
        assert loss(found) <= best.fun + 2e-4

    def test_known_value(self):
        """Right three times in four with one, once with the other: each row says 0.8 or 0.2."""
        first = np.array([[0.8, 0.2]] * 4)
        second = first[:, ::-1]
        found = mixture_weights([first, second], np.array([0, 0, 0, 1]))
        assert found @ [0.8, 0.2] == pytest.approx(0.75, abs=1e-3)

    def test_rows_that_nobody_expected(self):
        surprised = np.array([[1.0, 0.0], [0.5, 0.5]])
        found = mixture_weights([surprised, surprised], np.array([1, 0]))
        np.testing.assert_allclose(found, 0.5)


def test_expected_seconds_grow_with_everything():
    base = expected_seconds(nn.Linear(9, 2), 1000, 5)
    assert expected_seconds(nn.Linear(9, 2), 2000, 5) == 2 * base
    assert expected_seconds(nn.Linear(9, 2), 1000, 10) == 2 * base
    assert expected_seconds(nn.Linear(19, 2), 1000, 5) == 2 * base
