import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal import metrics
from selfcal.errors import ConfigError
from selfcal.objectives import DECE, SECE, soft_accuracy
from tests.objectives.batches import rows, value

SHARP = 1e-9
LOGITS_OF_3_4 = torch.tensor([[np.log(3.0), 0.0]])
"""A row with the probabilities 3/4 and 1/4."""


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference_accuracy(p, y, temperature):
    """The soft rank over all pairs of classes, one by one."""
    accuracy = np.zeros(len(p))
    for i, label in enumerate(y):
        rank = 1.0
        for k in range(p.shape[1]):
            if k != label:
                rank += sigmoid((p[i, k] - p[i, label]) / temperature)
        accuracy[i] = max(0.0, 2 - rank)
    return accuracy


def reference_sece(p, y, w, *, bandwidth, temperature):
    c, a = p.max(axis=1), reference_accuracy(p, y, temperature)
    total = 0.0
    for i in range(len(c)):
        kernel = [w[j] * np.exp(-((c[i] - c[j]) ** 2) / (2 * bandwidth**2)) for j in range(len(c))]
        total += w[i] * abs(np.dot(kernel, a) / np.sum(kernel) - c[i])
    return total / w.sum()


def reference_dece(p, y, w, *, n_bins, bin_temperature, accuracy_temperature):
    """As the paper writes it: bins b = 1..n with slopes b, less the sum of the lower edges up to theirs."""
    c, a = p.max(axis=1), reference_accuracy(p, y, accuracy_temperature)
    members = np.zeros((len(c), n_bins))
    for i in range(len(c)):
        height = [
            (b * c[i] - sum(e / n_bins for e in range(b))) / bin_temperature for b in range(1, n_bins + 1)
        ]
        members[i] = np.exp(np.array(height) - max(height))
        members[i] /= members[i].sum()
    error = 0.0
    for b in range(n_bins):
        mass = (w * members[:, b]).sum()
        if mass > 0:
            acc, conf = (w * members[:, b]) @ a / mass, (w * members[:, b]) @ c / mass
            error += mass / w.sum() * abs(acc - conf)
    return error


def numpy_rows(weighted):
    """Sure rows are wrong and unsure ones right: gaps of one sign would add up to the same in any bins."""
    logits, _ = rows(n=60, k=4)
    confidence, choice = torch.softmax(logits, dim=1).max(dim=1)
    generator = np.random.default_rng(2)
    right = torch.from_numpy(generator.uniform(size=60)) < 1.2 - confidence
    y = torch.where(right, choice, (choice + 1) % 4)
    w = generator.uniform(0, 3, 60) if weighted else np.ones(60)
    return logits, y, torch.from_numpy(w), torch.softmax(logits, dim=1).numpy(), y.numpy(), w


class TestSoftAccuracy:
    def test_by_hand(self):
        probs = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.4, 0.4, 0.2]], dtype=torch.float64)
        got = soft_accuracy(probs, torch.tensor([0, 0, 0]), temperature=0.1)
        first = 1 - sigmoid(-2) - sigmoid(-3)
        second = 1 - sigmoid(2) - sigmoid(-1)  # under zero: past the second rank
        tied = 1 - sigmoid(0) - sigmoid(-2)
        assert second < 0
        assert got.tolist() == pytest.approx([first, 0.0, tied])

    def test_two_classes_share_it(self):
        """With two classes the accuracies of both labels add up to one."""
        probs = torch.softmax(rows(k=2)[0], dim=1)
        first, second = (soft_accuracy(probs, torch.full((40,), label), 0.2) for label in (0, 1))
        torch.testing.assert_close(first + second, torch.ones(40).double())

    @settings(deadline=None, max_examples=50)
    @given(seed=st.integers(0, 2**16), k=st.integers(2, 50), temperature=st.floats(1e-4, 1))
    def test_grows_with_the_probability_of_the_label_and_stays_in_the_unit_interval(
        self, seed, k, temperature
    ):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(20, k, generator=generator, dtype=torch.float64) * 3
        y = torch.randint(k, (20,), generator=generator)
        more = logits + torch.nn.functional.one_hot(y, k)
        low, high = (soft_accuracy(torch.softmax(z, dim=1), y, temperature) for z in (logits, more))
        assert (high - low).min() >= -1e-9
        assert low.min() >= 0
        assert high.max() <= 1 + 1e-12

    def test_the_limit_is_whether_the_argmax_is_right(self):
        logits, y = rows()
        probs = torch.softmax(logits, dim=1)
        right = (probs.argmax(dim=1) == y).double()
        torch.testing.assert_close(soft_accuracy(probs, y, SHARP), right, atol=0, rtol=0)
        hard = soft_accuracy(probs.requires_grad_(), y, 0)
        torch.testing.assert_close(hard, right, atol=0, rtol=0)
        assert not hard.requires_grad


class TestSECE:
    @pytest.mark.parametrize("bandwidth", [0.003, 0.01, 0.2])
    @pytest.mark.parametrize("temperature", [0, SHARP])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_is_the_metric_of_that_name_when_sharp(self, bandwidth, temperature, weighted):
        logits, y, weight, p, labels, w = numpy_rows(weighted)
        expected = metrics.sece(labels, p, bandwidth=bandwidth, sample_weight=w)
        got = value(SECE(bandwidth=bandwidth, temperature=temperature), logits, y, weight)
        assert got.item() == pytest.approx(expected, abs=2e-6)  # the metric's own grid is within 1e-6

    @pytest.mark.parametrize("weighted", [False, True])
    def test_over_all_pairs(self, weighted):
        logits, y, weight, p, labels, w = numpy_rows(weighted)
        expected = reference_sece(p, labels, w, bandwidth=0.05, temperature=0.1)
        got = value(SECE(bandwidth=0.05, temperature=0.1), logits, y, weight)
        assert got.item() == pytest.approx(expected, rel=1e-10)

    def test_one_row_by_hand(self):
        """The accuracy around a row alone is its own."""
        logits, y = LOGITS_OF_3_4.double(), torch.tensor([0])
        got = value(SECE(temperature=0.25), logits, y).item()
        assert got == pytest.approx(abs(sigmoid(0.5 / 0.25) - 0.75))

    def test_a_wide_kernel_compares_with_the_mean_accuracy(self):
        logits, y = rows()
        c = torch.softmax(logits, dim=1).max(dim=1).values
        mean_accuracy = (logits.argmax(dim=1) == y).double().mean()
        got = value(SECE(bandwidth=1e6, temperature=0), logits, y)
        torch.testing.assert_close(got, (mean_accuracy - c).abs().mean())


class TestDECE:
    @pytest.mark.parametrize("n_bins", [1, 10, 15])
    @pytest.mark.parametrize("accuracy_temperature", [0, SHARP])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_is_the_hard_error_when_sharp(self, n_bins, accuracy_temperature, weighted):
        logits, y, weight, p, labels, w = numpy_rows(weighted)
        expected = metrics.expected_calibration_error(labels, p, n_bins=n_bins, sample_weight=w)
        objective = DECE(n_bins=n_bins, bin_temperature=1e-7, accuracy_temperature=accuracy_temperature)
        assert value(objective, logits, y, weight).item() == pytest.approx(expected, abs=1e-9)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("n_bins", [5, 15])
    def test_over_all_bins_in_the_papers_form(self, weighted, n_bins):
        logits, y, weight, p, labels, w = numpy_rows(weighted)
        chosen = {"n_bins": n_bins, "bin_temperature": 0.02, "accuracy_temperature": 0.1}
        expected = reference_dece(p, labels, w, **chosen)
        assert value(DECE(**chosen), logits, y, weight).item() == pytest.approx(expected, rel=1e-10)

    def test_a_confidence_on_an_edge_belongs_to_both_sides_alike(self):
        """With two bins and 3/4 in the middle of the upper one, the odds of the lower are exp(-1 / 4T)."""
        logits, y = LOGITS_OF_3_4.double().repeat(3, 1), torch.tensor([0, 0, 1])
        logits[2] = 0.0  # confidence 1/2, on the edge; it is wrong
        got = value(DECE(n_bins=2, bin_temperature=0.25, accuracy_temperature=0), logits, y).item()
        in_lower = sigmoid(-1.0)
        lower, upper = (2 * member * 0.25 - 0.5 * 0.5 for member in (in_lower, 1 - in_lower))
        assert lower < 0 < upper
        assert got == pytest.approx((upper - lower) / 3)

    def test_the_stated_share_of_a_bin(self):
        from selfcal._support.top_label import bin_memberships

        middle = torch.tensor([10.5 / 15], dtype=torch.float64)
        member = bin_memberships(middle, 15, 2 * DECE().bin_temperature / 15)[0, 10]
        assert member.item() == pytest.approx(0.93, abs=0.005)


@pytest.mark.parametrize("objective", [SECE(temperature=0.1), DECE(accuracy_temperature=0.1)], ids=repr)
def test_a_step_downhill_lowers_the_error(objective):
    logits, y = rows()
    logits = (logits * 3).requires_grad_()
    before = value(objective, logits, y)
    (grad,) = torch.autograd.grad(before, logits)
    assert value(objective, logits - 1e-3 * grad / grad.norm(), y) < before


def test_the_soft_accuracy_pulls_the_label_up_and_the_others_down():
    logits, y = rows()
    probs = torch.softmax(logits, dim=1).requires_grad_()
    (grad,) = torch.autograd.grad(soft_accuracy(probs, y, 0.5).sum(), probs)
    label = torch.nn.functional.one_hot(y, 3).bool()
    assert grad[label].min() >= 0
    assert grad[~label].max() <= 0
    assert grad[label].max() > 0.1


@pytest.mark.parametrize(
    ("soft", "hard"),
    [
        (SECE(temperature=0.1), SECE(temperature=0)),
        (DECE(accuracy_temperature=0.1), DECE(accuracy_temperature=0)),
    ],
    ids=["SECE", "DECE"],
)
def test_only_a_soft_accuracy_tells_the_label_from_the_other_losers(soft, hard):
    """Hard correctness knows the confidence alone, which pulls at the losers as they are probable."""
    logits = torch.tensor([[0.3, 0.1, -2.0], [1.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    for objective, differs in ((soft, True), (hard, False)):
        (grad,) = torch.autograd.grad(value(objective, logits, torch.tensor([1, 1])), logits)
        pull = grad[0] / torch.softmax(logits[0], dim=0)
        assert (abs(pull[1] - pull[2]) > 1e-3).item() is differs


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: SECE(bandwidth=0), r"bandwidth must be a number in \(0"),
        (lambda: SECE(temperature=-1), r"temperature must be a number in \[0"),
        (lambda: DECE(n_bins=0), "n_bins must be a whole number of at least 1"),
        (lambda: DECE(bin_temperature=0), r"bin_temperature must be a number in \(0"),
        (lambda: DECE(accuracy_temperature=float("nan")), r"accuracy_temperature must be a number in \[0"),
    ],
    ids=["bandwidth", "temperature", "n_bins", "bin_temperature", "accuracy_temperature"],
)
def test_bad_settings(wrong, message):
    with pytest.raises(ConfigError, match=message):
        wrong()
