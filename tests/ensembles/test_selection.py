"""Selection among candidates whose predictions are known beforehand: which continue, and with what weight."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from torch import nn

from selfcal import recipes
from selfcal.ensembles import CrossFit, NetworkCandidate, pooling
from selfcal.ensembles.mixing import MIN_WEIGHT, mean_log_loss
from selfcal.ensembles.modules import EnsembleModule, LogarithmicPool
from selfcal.ensembles.selection import select, time_budget_note
from selfcal.ensembles.training import TrainedMembers

N, FOLDS = 120, 5
Y = np.arange(N) % 3
SPLITS = CrossFit(FOLDS, repeats=2).splits(Y, seed=0)


def logits_of(skill, seed=0):
    """Predictions: the more skill, the nearer to the label."""
    rng = np.random.default_rng(seed)
    return skill * np.eye(3)[Y] + rng.normal(size=(N, 3))


class Field:
    """Candidates that are not trained: their predictions are known, and every request is recorded."""

    def __init__(self, seconds=1.0, status="stopped early", **logits):
        self.logits, self.seconds, self.status, self.calls = logits, seconds, status, []

    def trainer(self, name, cost):
        def train(members, max_seconds):
            self.calls.append((name, list(members), max_seconds))
            logits = np.full((1, N, 3), np.nan)
            held_out = np.concatenate([SPLITS[member].held_out for member in members])
            logits[0, held_out] = self.logits[name][held_out]
            result = SimpleNamespace(seconds=self.seconds * len(members), network=name, status=self.status)
            return TrainedMembers([nn.Linear(1, 3) for _ in members], logits, result)

        return SimpleNamespace(
            candidate=NetworkCandidate(name, recipes.standard()), expected_seconds=cost, train=train
        )

    def select(self, costs=None, **settings):
        costs = costs or [0.0] * len(self.logits)
        trainers = [self.trainer(name, cost) for name, cost in zip(self.logits, costs, strict=True)]
        return select(trainers, FOLDS * settings.get("rounds", 1), Y, **settings)

    def asked(self):
        """How many networks each candidate was asked for."""
        return {name: sum(len(members) for n, members, _ in self.calls if n == name) for name in self.logits}


def by_name(selection):
    return {record["network"]: record for record in selection.records}


class TestSelect:
    def test_with_time_enough_all_run_to_the_end(self):
        field = Field(a=logits_of(0.1), b=logits_of(2, 1), c=logits_of(1, 2))
        found = field.select(costs=[1, 1, 1], budget=100)
        assert [call[1] for call in field.calls] == [[0, 1, 2, 3, 4]] * 3
        assert not np.isnan(found.probs).any()

    @pytest.mark.parametrize(
        ("status", "budget", "expected"),
        [
            ("stopped early", 100, []),
            (
                "out of time",
                100,
                ["'a' was trained for a shorter time", "'b' was trained for a shorter time"],
            ),
            ("stopped early", 6, ["'b' has 1 of 5 members"]),
            ("stopped early", 0.5, ["'a' has 1 of 5 members", "'b' was not trained"]),
        ],
    )
    def test_what_the_budget_left_out_is_noted(self, status, budget, expected):
        field = Field(a=logits_of(2), b=logits_of(0.1, 1), status=status)
        found = field.select(costs=[5, 5], budget=budget)
        note = time_budget_note(found.records, budget)
        assert note.count(";") == max(0, len(expected) - 1)
        assert all(part in note for part in expected)
        assert bool(note) == bool(expected)
        assert ("speed of this machine" in note) == (status == "out of time" or budget < 1)

    @pytest.mark.parametrize("skills", [(0.1, 2, 1), (2, 1, 0.1), (1, 0.1, 2)])
    def test_the_pool_is_no_worse_than_any_candidate_on_held_out_rows(self, skills):
        field = Field(**{f"c{i}": logits_of(skill, i) for i, skill in enumerate(skills)})
        found = field.select()
        assert (
            mean_log_loss(found.probs, Y, None)
            <= min(r["out_of_fold_log_loss"] for r in found.records) + 1e-12
        )

    @settings(deadline=None, max_examples=20)
    @given(seed=st.integers(0, 999), n=st.integers(1, 5))
    def test_the_pool_is_no_worse_whatever_the_predictions(self, seed, n):
        rng = np.random.default_rng(seed)
        field = Field(
            **{f"c{i}": logits_of(rng.uniform(-1, 4), seed + i) * rng.uniform(0.1, 5) for i in range(n)}
        )
        weight = rng.exponential(size=N)
        found = field.select(weight=weight)
        least = min(record["out_of_fold_log_loss"] for record in found.records)
        assert mean_log_loss(found.probs, Y, weight) <= least + 1e-12
        weights = [record["weight"] for record in found.records]
        assert weights == sorted(weights, reverse=True)
        assert all(w == 0 or w >= MIN_WEIGHT for w in weights)

    def test_if_time_is_short_those_with_a_part_in_the_pool_continue_or_half_of_them(self):
        skills = {"a": -2, "b": 1, "c": -2, "d": 1, "e": 1}
        field = Field(**{name: logits_of(skill, i) for i, (name, skill) in enumerate(skills.items())})
        found = by_name(field.select(costs=[10.0] * 5, budget=29))
        asked = field.asked()
        assert (asked["a"], asked["c"]) == (1, 1)
        assert sorted(asked[name] for name in "bde") == [1, 5, 5]
        best = max("bde", key=lambda name: asked[name])
        assert [members for name, members, _ in field.calls if name == best] == [[0], [1, 2], [3, 4]]
        assert {name: found[name]["networks"] for name in "abcde"} == asked

    def test_a_candidate_without_a_part_in_the_pool_is_not_trained_further(self):
        field = Field(good=logits_of(3), bad=logits_of(-2, 1))
        field.select(costs=[55.0, 55.0], budget=100)
        assert field.asked() == {"good": 5, "bad": 1}

    def test_candidates_that_take_little_time_are_trained_in_full_first(self):
        field = Field(slow=logits_of(1), slower=logits_of(2, 1), quick=logits_of(0.1, 2))
        field.select(costs=[60.0, 61.0, 1.0], budget=100)
        assert field.calls[0][:2] == ("quick", [0, 1, 2, 3, 4])
        assert [name for name, *_ in field.calls[1:3]] == ["slow", "slower"]

    def test_the_first_candidates_that_take_half_of_the_time_together_are_trained_in_full(self):
        field = Field(0.0, **{name: logits_of(1, seed) for seed, name in enumerate("abcd")})
        field.select(costs=[20.0, 25.0, 30.0, 5.0], budget=100)
        assert [call[:2] for call in field.calls[:3]] == [(name, [0, 1, 2, 3, 4]) for name in "abd"]
        assert field.calls[3][:2] == ("c", [0])

    def test_what_takes_little_time_gets_it_whatever_the_others_need(self):
        field = Field(0.0, quick=logits_of(1), slow=logits_of(1, 1))
        field.select(costs=[10.0, 1e6], budget=100)
        assert field.calls[0][0] == "quick"
        assert field.calls[0][2] == pytest.approx(20.0)

    def test_those_continue_that_add_most_to_what_is_trained_in_full(self):
        """A copy of the quick candidate adds nothing, however good it is."""
        known = logits_of(1)
        field = Field(copy=known, other=logits_of(0.9, 1), quick=known)
        field.select(costs=[80.0, 80.0, 1.0], budget=100)
        assert field.asked() == {"copy": 1, "other": 5, "quick": 5}

    def test_no_candidate_takes_the_time_of_the_others(self):
        """Each may take its part of the time left, or what is left if the others take twice what is expected."""
        field = Field(0.0, a=logits_of(1), b=logits_of(1, 1), c=logits_of(1, 2))
        field.select(costs=[10.0, 10.0, 10.0], budget=90)
        limits = {name: limit for name, _, limit in field.calls}
        assert limits == pytest.approx({"a": 90 - 2 * 20, "b": 90 - 2 * 10, "c": 90}, rel=0.01)
        field = Field(0.0, a=logits_of(1), b=logits_of(1, 1))
        field.select(costs=[500.0, 1000.0], budget=120)
        assert field.calls[0][1] == [0]
        left = 500 + 1000 + 500 * 4  # and one of them further
        assert field.calls[0][2] == pytest.approx(120 * 500 / left, rel=0.01)

    @pytest.mark.parametrize("n_rows", [10, 10_000])
    def test_candidates_with_few_members_count_where_they_predict_enough_rows(self, n_rows, monkeypatch):
        monkeypatch.setattr(pooling, "ENOUGH_ROWS", n_rows)
        field = Field(poor=logits_of(0.5), good=logits_of(4, 1), quick=logits_of(0.5, 2))
        found = field.select(costs=[90.0, 90.0, 1.0], budget=100)
        weights = {name: record["weight"] for name, record in by_name(found).items()}
        assert field.asked() == {"poor": 1, "good": 5, "quick": 5}
        assert weights["good"] > 0.5
        assert not np.isnan(found.probs).any()

    def test_further_rounds_train_all_if_there_is_time(self):
        field = Field(good=logits_of(2), bad=logits_of(-2))
        found = field.select(costs=[2.0] * 2, budget=100, rounds=2)
        assert field.asked() == {"good": 10, "bad": 10}
        assert [members for name, members, _ in field.calls if name == "good"] == [
            [0, 1, 2, 3, 4],
            [5, 6, 7, 8, 9],
        ]
        assert not time_budget_note(found.records, 100)
        assert len(found.module.members) == 10

    def test_further_rounds_train_the_largest_weights_that_there_is_time_for(self):
        skills = {"slow": 1, "bad": -2, "good": 1.2, "fair": 0.1}
        field = Field(0.0, **{name: logits_of(skill, i) for i, (name, skill) in enumerate(skills.items())})
        found = field.select(
            costs=[20.0, 1.0, 4.6, 4.6], budget=19, rounds=2
        )  # of which each round takes a half
        assert field.asked() == {"slow": 5, "bad": 10, "good": 10, "fair": 5}
        note = time_budget_note(found.records, 19)
        assert all(f"'{name}' has 5 of 10 members" in note for name in ("slow", "fair"))
        assert "good" not in note
        assert not np.isnan(found.probs).any()

    def test_a_further_round_that_does_not_end_in_time_is_not_used(self):
        field = Field(a=logits_of(1), status="out of time")
        found = field.select(costs=[10.0], budget=100, rounds=2)
        assert field.asked() == {"a": 10}
        assert len(found.module.members) == 5
        assert "speed of this machine" in time_budget_note(found.records, 100)

    def test_no_further_round_begins_that_cannot_end_at_the_pace_so_far(self):
        field = Field(
            12.0, a=logits_of(1), b=logits_of(1.1, 1)
        )  # of which each round is expected to take 10 s
        found = field.select(costs=[20.0, 20.0], budget=100, rounds=2)
        assert field.asked() == {"a": 5, "b": 5}
        assert "speed of this machine" in time_budget_note(found.records, 100)

    def test_the_pace_counts_the_time_of_an_earlier_process(self):
        """A round that was expected to take 10 s took 40: the next one does not end in the 20 s left."""
        field = Field(8.0, a=logits_of(1))
        field.select(costs=[20.0], budget=60, rounds=2)
        assert field.asked() == {"a": 5}

    def test_which_candidates_continue_does_not_depend_on_the_clock(self):
        def asked(seconds):
            field = Field(seconds, a=logits_of(1), b=logits_of(2, 1), c=logits_of(3, 2), d=logits_of(0, 3))
            field.select(costs=[100.0] * 4, budget=300)
            return field.asked()

        assert asked(0.0) == asked(1.0)

    def test_no_candidate_starts_after_the_time_is_over(self):
        field = Field(10.0, a=logits_of(1), b=logits_of(3, 1), c=logits_of(2, 2))
        found = field.select(costs=[0.0] * 3, budget=60)
        assert field.asked() == {"a": 5, "b": 5, "c": 0}
        assert [limit for _, _, limit in field.calls] == pytest.approx([60, 10], abs=1)
        missed = by_name(found)["c"]
        assert (missed["networks"], missed["out_of_fold_log_loss"], missed["weight"]) == (0, None, 0.0)

    def test_cut_short_it_predicts_with_the_networks_there_are(self):
        field = Field(10.0, a=logits_of(1), b=logits_of(3, 1))
        found = field.select(costs=[50.0] * 2, budget=5)
        assert field.asked() == {"a": 1, "b": 0}
        assert len(found.module.members) == 1
        np.testing.assert_array_equal(np.flatnonzero(~np.isnan(found.probs[:, 0])), SPLITS[0].held_out)

    def test_a_single_candidate_has_all_the_weight(self):
        field = Field(only=logits_of(1))
        (record,) = field.select().records
        assert (record["weight"], record["networks"], record["seconds"]) == (1.0, FOLDS, 5.0)

    def test_equal_candidates_have_equal_weight(self):
        field = Field(a=logits_of(1), b=logits_of(1), bad=logits_of(-2))
        found = by_name(field.select())
        assert found["a"]["weight"] == pytest.approx(found["b"]["weight"], rel=1e-3)
        assert found["bad"]["weight"] == 0

    def test_kinds_have_the_weight_of_their_candidate(self):
        found = Field(a=3 * logits_of(1), b=logits_of(1.2, 1)).select()
        assert isinstance(found.module, LogarithmicPool)
        np.testing.assert_allclose(found.module.weights, [record["weight"] for record in found.records])
        for kind, record in zip(found.module.members, found.records, strict=True):
            assert isinstance(kind, EnsembleModule)
            assert len(kind.members) == FOLDS
            np.testing.assert_allclose(kind.temperatures, record["temperature"], rtol=1e-6)
        assert found.result.network == found.records[0]["network"]

    @pytest.mark.parametrize("names", [("a",), ("a", "b")])
    def test_new_rows_are_predicted_with_more_members_and_so_a_larger_scale(self, names, monkeypatch):
        monkeypatch.setattr(pooling, "served_scale", lambda *_, n_served, **__: 1 + n_served / 100)
        field = Field(**{name: logits_of(1.5, seed) for seed, name in enumerate(names)})
        once, twice = field.select(), field.select(rounds=2)
        for record, before in zip(twice.records, once.records, strict=True):
            assert record["weight"] / before["weight"] == pytest.approx(1.1 / 1.05)
        np.testing.assert_allclose(once.probs, twice.probs)  # held-out rows are not scaled
        if len(names) == 1:
            assert float(twice.module.temperature) == pytest.approx(1 / 1.1)

    def test_the_temperature_corrects_an_overconfident_candidate(self):
        found = by_name(Field(sure=5 * log_softmax(logits_of(1), axis=1)).select())["sure"]
        assert found["temperature"] > 2
