"""Averages of predictions, temperatures and pooling weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import softmax

from selfcal.ensembles import mixing
from selfcal.ensembles.mixing import (
    fitted_temperature,
    log_losses,
    mean_probs,
    pool,
    pool_weights,
    served_scale,
)


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(1, 4),
    temperature=st.floats(0.1, 10),
    seed=st.integers(0, 99),
)
def test_mean_probs_is_the_mean_of_the_softmaxes(n, temperature, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=5, size=(n, 6, 3))
    logits[rng.random((n, 6)) < 0.3] = np.nan
    expected = [
        np.mean([softmax(one / temperature) for one in row if not np.isnan(one[0])] or [[np.nan] * 3], axis=0)
        for row in logits.transpose(1, 0, 2)
    ]
    np.testing.assert_allclose(mean_probs(logits, temperature), expected, rtol=1e-9)


def drawn(n, sharpness, seed=0):
    """Logits, and labels drawn from their softmax at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3))
    y = (softmax(logits, axis=1).cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
    return logits[None] * sharpness, y


class TestFittedTemperature:
    @pytest.mark.parametrize("sharpness", [0.3, 3.0])
    def test_finds_what_sharpened_the_logits(self, sharpness):
        assert fitted_temperature(*drawn(3000, sharpness)) == pytest.approx(sharpness, rel=0.1)

    def test_is_at_least_one_if_no_row_is_wrong(self):
        logits, y = drawn(200, 0.3)
        assert fitted_temperature(logits, logits[0].argmax(axis=1)) == pytest.approx(1, abs=1e-3)
        assert fitted_temperature(logits, y, 1.0 * (logits[0].argmax(axis=1) == y)) == pytest.approx(
            1, abs=1e-3
        )
        assert fitted_temperature(logits, y) < 0.5

    def test_many_rows_are_no_more_work(self, monkeypatch):
        seen = []
        monkeypatch.setattr(mixing, "MAX_FITTED_ROWS", 1000)
        monkeypatch.setattr(mixing, "mean_probs", lambda v, t: seen.append(v.shape[1]) or mean_probs(v, t))
        assert fitted_temperature(*drawn(5000, 2.0)) == pytest.approx(2, rel=0.2)
        assert max(seen) == 1000

    def test_is_the_best_of_many(self):
        logits, y = drawn(500, 2.5)
        found = fitted_temperature(logits, y)
        losses = [log_losses(mean_probs(logits, t), y).mean() for t in np.geomspace(0.05, 20, 400)]
        assert log_losses(mean_probs(logits, found), y).mean() <= min(losses) + 1e-6

    def test_is_one_where_nothing_can_be_gained(self):
        assert fitted_temperature(*drawn(3000, 1.0)) == 1.0

    @pytest.mark.parametrize("n", [1, 4])
    def test_is_one_where_there_are_few_rows(self, n):
        assert fitted_temperature(*drawn(n, 3.0)) == 1.0

    def test_rows_without_logits_and_rows_of_weight_zero_do_not_count(self):
        logits, y = drawn(600, 3.0)
        expected = fitted_temperature(logits[:, :300], y[:300])
        silent = logits.copy()
        silent[:, 300:] = np.nan
        assert fitted_temperature(silent, y) == expected
        weighed = fitted_temperature(logits, y, np.repeat([1.0, 0.0], 300))
        assert weighed == pytest.approx(expected, rel=0.02)


def test_log_losses_is_never_infinite():
    assert np.isfinite(log_losses(np.array([[1.0, 0.0]]), np.array([1]))).all()


def pooled_loss(weights, probs, y, weight=None):
    pooled = pool(weights, [np.log(one) for one in probs])
    return np.average(log_losses(pooled, y), weights=weight) + np.square(weights).sum() / len(y)


class TestPoolWeights:
    @settings(deadline=None, max_examples=30)
    @given(seed=st.integers(0, 999), n=st.integers(2, 4), weighted=st.booleans())
    def test_as_low_as_a_general_optimiser_gets(self, seed, n, weighted):
        """Of the weights that are not removed."""
        rng = np.random.default_rng(seed)
        y = rng.integers(3, size=80)
        probs = softmax(
            rng.uniform(0, 3, size=(n, 1, 1)) * np.eye(3)[y] + rng.normal(size=(n, 80, 3)), axis=2
        )
        weight = rng.exponential(size=80) if weighted else None
        found = pool_weights([np.log(one) for one in probs], y, weight)
        kept = np.flatnonzero(found)
        best = minimize(lambda z: pooled_loss(np.exp(z), probs[kept], y, weight), np.zeros(len(kept)))
        assert pooled_loss(found[kept], probs[kept], y, weight) <= best.fun + 1e-4
        assert (found[kept] >= mixing.MIN_WEIGHT).all()

    def test_known_value(self):
        """One model, right nine times in ten where it says 0.8: 0.8^w / (0.8^w + 0.2^w) = 0.9."""
        y = np.repeat([0, 1], [9000, 1000])
        (found,) = pool_weights([np.log([[0.8, 0.2]] * 10_000)], y)
        assert found == pytest.approx(np.log(9) / np.log(4), rel=0.01)

    def test_a_model_of_little_weight_is_removed(self):
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=500)
        good = np.log(softmax(2 * np.eye(2)[y] + rng.normal(size=(500, 2)), axis=1))
        noise = np.log(softmax(rng.normal(size=(500, 2)), axis=1))
        found = pool_weights([noise, good], y)
        assert found[0] == 0
        assert found[1] == pytest.approx(pool_weights([good], y)[0])

    def test_rows_that_nobody_expected(self):
        surprised = np.log(np.array([[1.0, 1e-38], [0.5, 0.5]]))
        assert np.isfinite(pool_weights([surprised, surprised], np.array([1, 0]))).all()


def test_a_pool_of_equal_models_is_sharper_if_the_weights_sum_to_more_than_one():
    log_probs = np.log([[0.8, 0.2]])
    np.testing.assert_allclose(pool([0.5, 0.5], [log_probs] * 2), [[0.8, 0.2]])
    np.testing.assert_allclose(pool([1.0, 1.0], [log_probs] * 2), [[16 / 17, 1 / 17]])


class TestServedScale:
    @staticmethod
    def members(n, noise, rows=4000, seed=0):
        """Logits of members around the true ones, and labels drawn from these."""
        rng = np.random.default_rng(seed)
        true = 2 * rng.normal(size=(rows, 3))
        return true + noise * rng.normal(size=(n, rows, 3)), (true + rng.gumbel(size=true.shape)).argmax(
            axis=1
        )

    def test_it_is_near_the_best_scale_of_the_mean_of_all_members(self):
        logits, y = self.members(10, noise=0.7)
        found = served_scale([logits[:2]], [1.0], [1.0], y, n_served=10)
        log_probs = {n: np.log(mean_probs(logits[:n])) for n in (2, 10)}
        best = pool_weights([log_probs[10]], y)[0] / pool_weights([log_probs[2]], y)[0]
        assert best > 1.05
        assert found == pytest.approx(best, abs=0.05)

    def test_few_rows_hardly_scale(self):
        logits, y = self.members(2, noise=0.7)
        many = served_scale([logits], [1.0], [1.0], y, n_served=10)
        few = [
            served_scale([logits[:, part]], [1.0], [1.0], y[part], n_served=10)
            for part in np.array_split(np.arange(len(y)), len(y) // 40)
        ]
        assert 1 <= np.mean(few) < 1 + 0.7 * (many - 1)

    def test_equal_members_need_none(self):
        logits, y = self.members(1, noise=0.7)
        assert served_scale([np.repeat(logits, 2, axis=0)], [1.0], [1.0], y, n_served=10) == pytest.approx(
            1, abs=1e-3
        )

    @pytest.mark.parametrize(("given", "served"), [(1, 5), (2, 2), (3, 2)])
    def test_it_is_one_without_more_members_to_serve_or_to_compare(self, given, served):
        logits, y = self.members(given, noise=1.0, rows=50)
        assert served_scale([logits], [1.0], [1.0], y, n_served=served) == 1.0

    def test_rows_without_all_predictions_do_not_count(self):
        logits, y = self.members(2, noise=0.7)
        gaps = logits.copy()
        gaps[1, ::2] = np.nan
        scales = [
            served_scale([one], [1.0], [1.0], z, n_served=10)
            for one, z in ((gaps, y), (logits[:, 1::2], y[1::2]))
        ]
        assert scales[0] == pytest.approx(scales[1])
