"""The audit on labels with known noise, under known posteriors."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal.datasets import Blobs, Spirals
from selfcal.errors import ConfigError, DataError
from selfcal.label_noise import transition
from selfcal.label_noise.audit import audit_labels

SETS = {"blobs": Blobs(1.7), "spirals": Spirals(2.5)}


def symmetric(k, rate):
    return (1 - rate - rate / (k - 1)) * np.eye(k) + rate / (k - 1)


def to_the_next(k, rate):
    return (1 - rate) * np.eye(k) + rate * np.roll(np.eye(k), 1, axis=1)


def draw(data, T, seed=0, n=1000):
    """Rows with the exact posterior of their given labels, those labels, and which of them are wrong."""
    X, y = data.sample(n, seed)
    chance = np.random.default_rng([seed, 1]).random((n, 1))
    labels = (T[y].cumsum(axis=1) > chance).argmax(axis=1)
    return data.posterior(X) @ T, labels, labels != y


def area(scores, wrong):
    """The probability that a wrong label has the higher score, ties counted half."""
    above = scores[wrong][:, None] - scores[~wrong]
    return ((above > 0) + (above == 0) / 2).mean()


def place(audit):
    found = np.empty(len(audit.ranking))
    found[audit.ranking] = -np.arange(len(found))
    return found


@pytest.mark.parametrize("rate", [0.1, 0.4])
@pytest.mark.parametrize("name", SETS)
def test_the_noise_is_estimated(name, rate):
    k = SETS[name].n_classes
    rates = [audit_labels(*draw(SETS[name], symmetric(k, rate), seed)[:2]).noise_rate for seed in range(5)]
    assert np.mean(rates) == pytest.approx(rate, rel=0.15)


def weak(data, T, seed=0, n=1000, blur=0.6):
    """The same for a model that sees the features blurred, is too confident, and has not learned the noise."""
    X, _ = data.sample(n, seed)
    blurred = data.posterior(X + np.random.default_rng([seed, 2]).normal(0, blur, X.shape)) ** 2
    return (blurred + 1e-6) / (blurred + 1e-6).sum(axis=1, keepdims=True), *draw(data, T, seed, n)[1:]


def flags(predict, data, T, **size):
    """How many labels are flagged over some draws, and which fraction of them is correct."""
    cases = [predict(data, T, seed, **size) for seed in range(12)]
    correct = np.concatenate([~wrong[audit_labels(probs, labels).flagged] for probs, labels, wrong in cases])
    return len(correct), correct.mean() if len(correct) else 0.0


@pytest.mark.parametrize("rate", [0.1, 0.4])
@pytest.mark.parametrize("name", SETS)
def test_false_alarms_stay_below_the_limit(name, rate):
    count, false = flags(draw, SETS[name], symmetric(SETS[name].n_classes, rate))
    assert count > 12 * 1000 * rate * 0.03
    assert false < 0.1


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_false_alarms_of_a_weak_model_stay_below_the_limit(rate):
    count, false = flags(weak, SETS["blobs"], symmetric(5, rate), n=3000)
    assert count > 100
    assert false < 0.1


@pytest.mark.parametrize("name", SETS)
def test_a_weak_model_flags_no_clean_labels(name):
    assert flags(weak, SETS[name], np.eye(SETS[name].n_classes)) == (0, 0.0)


def test_with_two_classes_a_weak_model_flags_nothing():
    """Nothing distinguishes a wrong label from an error of the model, unless the model has learned the noise."""
    for rate in (0.1, 0.4):
        assert flags(weak, SETS["spirals"], symmetric(2, rate))[0] < 10


@pytest.mark.parametrize("name", SETS)
def test_overlap_is_not_noise(name):
    audits = [audit_labels(*draw(SETS[name], np.eye(SETS[name].n_classes), seed)[:2]) for seed in range(5)]
    assert sum(len(audit.flagged) for audit in audits) <= 5
    assert max(audit.noise_rate for audit in audits) < 0.01
    assert "none can be named" in str(audits[0])


def test_ambiguous_rows_are_not_flagged():
    """Labels of rows at 60 to 40 are not errors, even if no row is unambiguous."""
    generator = np.random.default_rng(0)
    p = generator.beta(4, 4, 2000)
    labels = (generator.random(2000) < p).astype(int)
    audit = audit_labels(np.column_stack([1 - p, p]), labels)
    assert len(audit.flagged) < 5


def test_the_ranking_is_that_of_bayes_under_symmetric_noise():
    """Then the probability of the given label alone decides, so nothing can rank better."""
    probs, labels, wrong = draw(SETS["blobs"], symmetric(5, 0.4))
    audit = audit_labels(probs, labels)
    assert area(place(audit), wrong) == pytest.approx(
        area(-probs[np.arange(len(labels)), labels], wrong), abs=1e-3
    )


def test_one_way_noise_is_seen_as_such():
    T = to_the_next(5, 0.2)
    probs, labels, wrong = draw(SETS["blobs"], T)
    audit = audit_labels(probs, labels)
    next_class = np.roll(np.eye(5, dtype=bool), 1, axis=1)
    assert (
        audit.transition[next_class].min() > 3 * audit.transition[~next_class & ~np.eye(5, dtype=bool)].max()
    )
    bayes = (
        1 - draw(SETS["blobs"], np.eye(5))[0][np.arange(1000), labels] * 0.8 / probs[np.arange(1000), labels]
    )
    self_confidence = -probs[np.arange(1000), labels]
    assert area(place(audit), wrong) > area(self_confidence, wrong) + 0.01
    assert area(place(audit), wrong) == pytest.approx(area(bayes, wrong), abs=0.01)


def test_suspicion_is_the_posterior_by_brute_force():
    """With the matrix known and a model that has learned the noise: count over all true classes."""
    T = symmetric(3, 0.3)
    true = np.random.default_rng(0).dirichlet(np.full(3, 0.3), 3000)
    generator = np.random.default_rng(1)
    labels = ((true @ T).cumsum(axis=1) > generator.random((3000, 1))).argmax(axis=1)
    found = transition.true_posterior(true @ T, labels, T)
    joint = found[:, :, None] * T
    expected = true[:, :, None] * T
    for j in range(3):
        right, ours = (
            1 - by[labels == j, j, j] / by[labels == j, :, j].sum(axis=1) for by in (expected, joint)
        )
        assert np.abs(right - ours).mean() < 0.02


def test_the_suggestion_is_the_likeliest_true_class():
    probs, labels, wrong = draw(Blobs(1.3), symmetric(5, 0.1))
    audit = audit_labels(probs, labels)
    surely = audit.suspicion > 0.8
    assert surely.sum() > 80
    assert (audit.suggested != labels)[surely].all()
    assert (audit.suggested == labels)[~wrong].mean() > 0.95


def test_flagged_is_the_longest_allowed_prefix():
    probs, labels, _ = draw(SETS["blobs"], symmetric(5, 0.2))
    audit = audit_labels(probs, labels, false_alarms=0.1)
    order = audit.suspicion[audit.ranking]
    assert (np.diff(order) <= 0).all()
    means = [1 - order[:count].mean() for count in range(1, 1001)]
    kept = [count for count, mean in enumerate(means, 1) if mean <= 0.1 and order[count - 1] >= 0.5]
    assert len(audit.flagged) == max(kept)
    assert audit.expected_false_alarms == pytest.approx(means[len(audit.flagged) - 1])
    assert (audit.flagged == audit.ranking[: len(audit.flagged)]).all()


def test_more_allowed_false_alarms_flag_more():
    probs, labels, _ = draw(SETS["blobs"], symmetric(5, 0.2))
    audits = [audit_labels(probs, labels, false_alarms=limit) for limit in (0, 0.08, 0.2, 1)]
    counts = [len(audit.flagged) for audit in audits]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == (audits[-1].suspicion >= 0.5).sum()


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(5)), seed=st.integers(0, 3))
def test_the_order_of_the_classes_does_not_matter(order, seed):
    probs, labels, _ = draw(SETS["blobs"], to_the_next(5, 0.2), seed, n=300)
    one, other = audit_labels(probs, labels), audit_labels(probs[:, order], np.argsort(order)[labels])
    np.testing.assert_allclose(other.suspicion, one.suspicion, atol=1e-6)
    assert (np.array(order)[other.suggested] == one.suggested).all()


def test_the_order_of_the_rows_does_not_matter():
    probs, labels, _ = draw(SETS["blobs"], symmetric(5, 0.2))
    shuffled = np.random.default_rng(0).permutation(1000)
    one, other = audit_labels(probs, labels), audit_labels(probs[shuffled], labels[shuffled])
    np.testing.assert_allclose(other.suspicion, one.suspicion[shuffled], atol=1e-9)


def test_informative_weights_help_and_others_do_no_harm():
    probs, labels, wrong = draw(SETS["spirals"], symmetric(2, 0.2))
    generator = np.random.default_rng(0)
    knowing = np.where(wrong, generator.random(1000), 0.5 + generator.random(1000))
    knowing[:100] = np.nan
    plain = area(place(audit_labels(probs, labels)), wrong)
    helped = audit_labels(probs, labels, weights=knowing)
    assert area(place(helped), wrong) > plain + 0.002
    assert helped.noise_rate == pytest.approx(audit_labels(probs, labels).noise_rate, abs=1e-6)
    unknowing = audit_labels(probs, labels, weights=generator.random(1000))
    assert area(place(unknowing), wrong) > plain - 0.005
    unknown = audit_labels(probs, labels, weights=np.full(1000, np.nan))
    assert (unknown.suspicion == audit_labels(probs, labels).suspicion).all()


def test_names_and_rows_for_a_table():
    probs, labels, _ = draw(SETS["blobs"], symmetric(5, 0.2))
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    audit = audit_labels(probs, names[labels], classes=names)
    numbers = json.loads(json.dumps(audit.to_dict(limit=3)))
    assert len(numbers["rows"]) == 3 < numbers["flagged"] == len(audit.flagged)
    first = numbers["rows"][0]
    assert first["row"] == audit.ranking[0]
    assert first["given"] == names[labels[audit.ranking[0]]]
    assert f"{len(audit.flagged)} rows are flagged" in str(audit)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_rows(n):
    audit = audit_labels(np.tile([0.7, 0.2, 0.1], (n, 1)), np.arange(n) % 3)
    assert sorted(audit.ranking) == list(range(n))
    assert ((audit.suspicion >= 0) & (audit.suspicion <= 1)).all()


def test_certain_probabilities():
    labels = np.arange(100) % 4
    audit = audit_labels(np.eye(4)[labels], labels)
    assert len(audit.flagged) == 0
    assert audit.noise_rate < 1e-3


@given(
    k=st.integers(2, 6), n=st.integers(1, 60), concentration=st.floats(0.01, 10), seed=st.integers(0, 1000)
)
@settings(max_examples=25, deadline=None)
def test_any_probabilities_give_a_sound_audit(k, n, concentration, seed):
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.full(k, concentration) + 1e-3, n)
    audit = audit_labels(probs, generator.integers(k, size=n))
    assert ((audit.suspicion >= 0) & (audit.suspicion <= 1)).all()
    np.testing.assert_allclose(audit.transition.sum(axis=1), 1)
    assert (audit.transition.argmax(axis=1) == np.arange(k)).all()
    assert audit.expected_false_alarms <= 0.1


PROBS = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((PROBS, [0, 1]), DataError, "y has 2, probs has 3"),
        ((PROBS, [0, 1, 2]), DataError, "row 2 is 2"),
        ((PROBS * 2, [0, 1, 0]), DataError, "sum to one"),
        ((PROBS[:, 0], [0, 1, 0]), DataError, "at least two classes"),
        ((PROBS[:0], []), DataError, "no rows"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        audit_labels(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"false_alarms": 1.5}, ConfigError, "false_alarms must be a number in"),
        ({"weights": [1.0, 2.0]}, DataError, "one weight for each of the 3 rows"),
        ({"weights": [1.0, -1.0, np.nan]}, DataError, "row 1 is -1"),
        ({"weights": [1.0, np.inf, np.nan]}, DataError, "row 1 is inf"),
        ({"classes": ["a"]}, DataError, "must name the 2 columns"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        audit_labels(PROBS, [0, 1, 0], **options)


def test_a_rare_label_is_noise_up_to_its_standard_error():
    """Of 400 rows of each class, 40 have each other label, whether the model states that or not."""
    given = np.repeat(np.arange(3), 400)
    predicted = np.where(np.arange(1200) % 400 < 40, (given + 1) % 3, given)
    predicted = np.where(np.arange(1200) % 400 >= 360, (given + 2) % 3, predicted)
    for stated, expected in ((0.1, 0.1), (0.001, 0.1 - np.sqrt(0.1 * 0.9 / 2400))):
        probs = np.full((1200, 3), stated) + np.eye(3)[predicted] * (1 - 3 * stated)
        off = transition.least_noise(probs, given)[~np.eye(3, dtype=bool)]
        np.testing.assert_allclose(off, expected, rtol=1e-6)
    halves = np.where(given[:800, None] == np.arange(2), 0.7, 0.3)
    assert transition.least_noise(halves, given[:800])[0, 1] < 1e-3  # no label contradicts the model


def test_labels_decide_how_far_predictions_are_corrected():
    """Noise is assumed in both cases; only where the labels have it are predictions changed."""
    T = symmetric(5, 0.4)
    clean, y, _ = draw(SETS["blobs"], np.eye(5))
    clean = np.maximum(clean, 1e-9)
    kept = transition.noise_corrected(clean, *transition.fit_noise_correction(clean, y, T))
    assert np.abs(kept - clean).mean() < 0.02
    noisy, labels, _ = draw(SETS["blobs"], T)
    flat = np.sqrt(noisy) / np.sqrt(noisy).sum(axis=1, keepdims=True)  # a model that is not confident enough
    corrected = transition.noise_corrected(flat, *transition.fit_noise_correction(flat, labels, T))
    assert np.abs(corrected - clean).mean() < 0.2 * np.abs(flat - clean).mean()


def test_few_uninformative_labels_do_not_make_the_correction_overconfident():
    """The most likely correction alone makes nearly all rows certain for one draw in three, and none for others."""
    T, sure = symmetric(2, 0.43), []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        first = rng.uniform(0.42, 0.58, 200)
        probs = np.c_[first, 1 - first]
        correction = transition.fit_noise_correction(probs, (rng.random(200) > first).astype(int), T)
        corrected = transition.noise_corrected(probs, *correction)
        sure.append(np.median(corrected.max(axis=1)))
    assert min(sure) > 0.55
    assert max(sure) < 0.9
