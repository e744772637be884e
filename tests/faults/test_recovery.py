"""Damaged checkpoints, checkpoints of other runs, NaN losses, calibrators that fail: recovery or an error."""

import itertools
import math
import os
import re
import signal

import numpy as np
import polars as pl
import pytest
import torch
from scipy.optimize import OptimizeResult
from sklearn.ensemble import HistGradientBoostingClassifier

from selfcal import BilevelStep, SelfCalibratedClassifier, calibrators, metrics, recipes
from selfcal.commands.fit import unfinished
from selfcal.errors import DataError
from selfcal.training import checkpoint, engine
from selfcal.training.problem import BilevelProblem
from tests.commands.conftest import QUICK, as_json, people, quick, run, shelf, succeed
from tests.faults.training import data

__all__ = ["shelf"]  # the fixture


def fit(shelf, out, *words):
    return ["fit", shelf / "people.csv", "--target", "kind", "--out", out, *quick(*words)]


@pytest.fixture
def stopped(shelf, tmp_path, monkeypatch):
    """A training that was stopped after five steps, saved after each; its checkpoints, newest first."""
    monkeypatch.setitem(engine.train.__kwdefaults__, "checkpoint_seconds", 0)
    monkeypatch.setattr(checkpoint, "MAX_SAVING_FRACTION", math.inf)
    take, count = BilevelStep.__call__, itertools.count(1)

    def interrupted(self, *batches):
        if next(count) == 5:
            signal.raise_signal(signal.SIGTERM)
        return take(self, *batches)

    with monkeypatch.context() as patched:
        patched.setattr(BilevelStep, "__call__", interrupted)
        assert run(*fit(shelf, tmp_path / "m")).exit_code == 143
    return sorted((unfinished(tmp_path / "m") / "checkpoint").glob("*.safetensors"), reverse=True)


def changed(data, place):
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


DAMAGE = {
    "empty": lambda data: b"",
    "cut in the header": lambda data: data[:100],
    "cut in the tensors": lambda data: data[:-100],
    "last byte": lambda data: data[:-1],
    "length": lambda data: changed(data, 0),
    "digest": lambda data: changed(data, data.index(b"sha256") + 20),
    "tree": lambda data: changed(data, data.index(b"state") + 2),
    "tensors": lambda data: changed(data, len(data) - 50),
    "pickle": lambda data: b"\x80\x04" + data,
}


@pytest.mark.fault("F5")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint(damage, stopped, shelf, tmp_path):
    """The one before it stands in, with a note; once that is damaged too, the command refuses to go on."""
    newest, before = stopped
    whole = before.read_bytes()
    for path in stopped:
        path.write_bytes(damage(path.read_bytes()))
    result = run(*fit(shelf, tmp_path / "m", "--resume"))
    assert result.exit_code == 5
    assert "No intact checkpoint is left in" in result.stderr
    assert newest.exists()
    assert not (tmp_path / "m").exists()
    before.write_bytes(whole)
    result = succeed(*fit(shelf, tmp_path / "m", "--resume"))
    assert f"note: {newest} cannot be used: " in result.stderr
    assert f"Resuming from {before.name}" in result.stderr
    weights = (tmp_path / "m" / "model.safetensors").read_bytes()
    assert weights == (shelf / "people-model" / "model.safetensors").read_bytes()


@pytest.mark.fault("F6")
@pytest.mark.usefixtures("stopped")
def test_a_checkpoint_of_another_run(shelf, tmp_path, monkeypatch):
    people(seed=1).write_csv(tmp_path / "other.csv")
    before = [path.read_bytes() for path in sorted(unfinished(tmp_path / "m").rglob("*.safetensors"))]
    other_data = ["fit", tmp_path / "other.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK]
    out = tmp_path / "m"
    words = fit(shelf, out)
    cases = [
        (other_data, r"train data was \w+ and is \w+"),
        (fit(shelf, out, "--method", "focal"), r"recipe was .*standard.* and is .*focal"),
        ([*words, "--seed", "2"], r"seed was \d+ and is \d+"),
    ]
    for command, named in cases:
        result = run(*command, "--resume")
        assert result.exit_code == 5, result.output
        assert re.search(f"belongs to another run: .*{named}", result.stderr)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "__version__", "99.0")
        result = run(*words, "--resume")
        assert result.exit_code == 5
        assert re.search(r"selfcal version was \S+ and is 99\.0", result.stderr)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "FORMAT", checkpoint.FORMAT - 1)  # the files come from a later version
        result = run(*words, "--resume")
        assert result.exit_code == 5
        assert "Resume with the version that wrote it" in result.stderr
    assert [path.read_bytes() for path in sorted(unfinished(tmp_path / "m").rglob("*.safetensors"))] == before
    succeed(*words, "--resume")


@pytest.mark.fault("F5")
@pytest.mark.fault("F6")
def test_trees_of_a_stopped_training(shelf, tmp_path, monkeypatch):
    """They are trained before the first network, which is stopped: like a checkpoint, damaged ones are refused."""
    words = ["fit", shelf / "people.csv", "--target", "kind", "--max-epochs", "1", "--out", tmp_path / "m"]
    take = BilevelStep.__call__

    def interrupted(self, *batches):
        signal.raise_signal(signal.SIGTERM)
        return take(self, *batches)

    with monkeypatch.context() as patched:
        patched.setattr(BilevelStep, "__call__", interrupted)
        assert run(*words).exit_code == 143
    trees, *_ = sorted(unfinished(tmp_path / "m").rglob("boosting-*/*.safetensors"))
    whole = trees.read_bytes()
    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", lambda *_: pytest.fail("it trained again"))
    trees.write_bytes(whole[:-1])
    result = run(*words, "--resume")
    assert result.exit_code == 5
    assert f"{trees} cannot be used: It is damaged" in result.stderr
    assert f"No intact checkpoint is left in {trees.parent}" in result.stderr
    trees.write_bytes(whole)
    result = run(*words, "--resume", "--seed", "2")
    assert result.exit_code == 5
    assert re.search(r"belongs to another run: .*seed was \d+ and is \d+", result.stderr)
    assert trees.read_bytes() == whole


def failing(monkeypatch, steps):
    """Make the training loss NaN at these calls."""
    evaluate, calls = BilevelProblem.evaluate, itertools.count(1)

    def sometimes(self, outer, batch, **options):
        found = evaluate(self, outer, batch, **options)
        return found._replace(loss=torch.tensor(math.nan)) if next(calls) in steps else found

    monkeypatch.setattr(BilevelProblem, "evaluate", sometimes)


@pytest.mark.fault("F7")
def test_a_loss_that_is_no_number_now_and_then(shelf, tmp_path, monkeypatch):
    failing(monkeypatch, {3, 9})
    result = succeed(*fit(shelf, tmp_path / "m"))
    told = "were not finite at step [3, 6]: training was rolled back"
    assert told in result.stderr
    assert "half the learning rate, at the end with Adam(lr=0.00125" in result.stderr
    assert told in (tmp_path / "m" / "report.html").read_text()
    assert told in succeed("inspect", tmp_path / "m").stdout


@pytest.mark.fault("F7")
def test_a_loss_that_never_is_a_number(shelf, tmp_path, monkeypatch):
    failing(monkeypatch, range(1, 100))
    result = run(*fit(shelf, tmp_path / "m"))
    assert result.exit_code == 4
    assert re.search(
        r"error: The training loss became nan at step 1 with Adam\(lr=0\.000625.*features of its rows lie between "
        r"\S+ and \S+\..*rolled back 3 times before",
        result.stderr,
    )
    assert os.listdir(tmp_path) == []


class Scaled(torch.nn.Linear):
    """Scores of any size."""

    size = 1.0

    def forward(self, x):
        return super().forward(x).sign() * self.size


@pytest.mark.fault("F8")
@pytest.mark.parametrize("method", ["standard", "temperature", "vector", "isotonic"])
@pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning")
def test_huge_scores_of_the_network(method):
    (x, y), *_ = ([part.numpy() for part in pair] for pair in data())
    settings = {"network": Scaled, "max_epochs": 1, "random_state": 0}
    model = SelfCalibratedClassifier(method, **settings).fit(x, y)
    for size in (1e4, 3e38):
        model.module_.size = size
        probs = model.predict_proba(x)
        assert np.isfinite(probs).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)
        assert 0 < metrics.log_loss(y, probs) < math.inf
    model.module_.size = math.inf
    with pytest.raises(DataError, match=r"The network returns no finite scores for row 0 of X"):
        model.predict_proba(x)


@pytest.mark.fault("F8")
@pytest.mark.parametrize("name", list(recipes.POST_HOC))
@pytest.mark.parametrize("size", [1e4, 3e38])
@pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning")
def test_huge_scores_of_others(name, size):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 3))
    y = (z + rng.normal(size=z.shape)).argmax(axis=1)
    probs = recipes.POST_HOC[name]().fit(size * z, y).predict_proba(size * z)
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)
    z[0, 0] = math.inf
    with pytest.raises(DataError, match="finite"):
        recipes.POST_HOC[name]().fit(z, y)


@pytest.mark.fault("F8")
@pytest.mark.parametrize("value", ["1e30", "-3e38"])
def test_a_cell_that_makes_the_scores_huge(value, shelf, tmp_path):
    table = people().with_columns(size=pl.when(pl.int_range(160) == 3).then(float(value)).otherwise("size"))
    table.write_csv(tmp_path / "d.csv")
    result = run("predict", shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / "p.csv")
    if result.exit_code == 0:
        found = pl.read_csv(tmp_path / "p.csv")["confidence"].to_numpy()
        assert ((found > 0) & (found <= 1)).all()
    else:
        assert result.exit_code == 3
        assert "row 3" in result.stderr
        assert not (tmp_path / "p.csv").exists()


SEARCHES = {
    "nowhere": lambda loss, start, **_: OptimizeResult(x=np.full_like(start, np.nan, dtype=float)),
    "beyond": lambda loss, start, **_: OptimizeResult(x=np.full_like(start, np.inf, dtype=float)),
    "astray": lambda loss, start, **_: OptimizeResult(x=np.arange(len(start)) * 50.0),
}


@pytest.mark.fault("F15")
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "name", ["vector", "matrix", "structured_matrix", "dirichlet", "ensemble_temperature", "field_aware"]
)
def test_a_calibrator_that_finds_nothing_is_not_used(search, name, shelf, tmp_path, monkeypatch):
    """A search that fails or leads astray: a temperature is used, and note, report and stored model agree."""
    for module in ("_multinomial", "ensemble_temperature", "_rising_line"):
        monkeypatch.setattr(f"selfcal.calibrators.{module}.minimize", SEARCHES[search])
    result = succeed(*fit(shelf, tmp_path / "m", "--method", name))
    told = re.search(
        r"note: (\w+ raises the log loss .*; temperature scaling is used instead\.)", result.stderr
    )
    assert told, result.stderr
    assert told[1] in (tmp_path / "m" / "report.html").read_text()
    stored = as_json("inspect", tmp_path / "m")["description"]["calibrator"]
    assert stored["state"]["share_"] == 0
    succeed("predict", tmp_path / "m", shelf / "people.csv", "--out", tmp_path / "p.csv")
    mine, plain = pl.read_csv(tmp_path / "p.csv"), pl.read_csv(shelf / "predictions.csv")
    assert mine.columns == plain.columns
    assert np.isfinite(mine["confidence"].to_numpy()).all()


@pytest.mark.fault("F15")
@pytest.mark.parametrize("name", ["VectorScaling", "PlattScaling", "BetaCalibration"])
@pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning")
def test_equations_that_cannot_be_solved(name, monkeypatch):
    def unsolved(*arguments, **keywords):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "cholesky", unsolved)
    monkeypatch.setattr(np.linalg, "lstsq", unsolved)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3))
    y = (3 * z + rng.normal(size=z.shape)).argmax(axis=1)
    softmax = calibrators.TemperatureScaling.from_state(
        {"n_classes_": 3, "is_identity_": True, "temperature_": 1.0}
    )
    probs = getattr(calibrators, name)().fit(z, y).predict_proba(z)
    assert metrics.log_loss(y, probs) <= metrics.log_loss(y, softmax.predict_proba(z)) + 1e-9


@pytest.mark.fault("F15")
def test_a_calibrator_that_does_not_help_is_told_apart(shelf, tmp_path):
    """`calibrate` measures on rows that the calibrator has not seen, and says when it is of no use."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 400)
    y = np.where(rng.random(400) < p, "a", "b")
    pl.DataFrame({"y": y, "prob_a": p, "prob_b": 1 - p}).write_csv(tmp_path / "d.csv")
    words = ["calibrate", tmp_path / "d.csv", "--target", "y", "--calibrator", "isotonic"]
    result = succeed(*words, "--out", tmp_path / "p.csv")
    assert "No significant gain: keep the predictions as they are" in result.stdout
