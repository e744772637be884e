import hashlib
import json
import math
import random
import re
import signal
import struct
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from selfcal import Batch, ImageBatches, Recipe, SelfCalibratedClassifier, TensorBatches, recipes, train
from selfcal.datasets import Blobs
from selfcal.errors import CheckpointError, ConfigError, ModelFormatError, RecoveryWarning, TrainingError
from selfcal.hypergradients import Unrolled
from selfcal.optimizers import SGD, Adam, CosLog, StepDecay
from selfcal.training import checkpoint
from selfcal.training.checkpoint import Generations, checkpointed, packed, unpacked
from tests.faults.training import data, digest, network, run


class Stop(Exception):  # noqa: N818 - not an error
    """Stands for the end of the process."""


def stop_at(count):
    def callback(event):
        if event.n_steps >= count:
            raise Stop

    return callback


@pytest.fixture
def _saved_often(monkeypatch):
    monkeypatch.setattr(checkpoint, "MAX_SAVING_FRACTION", math.inf)


def interrupted(go, stops=(12, 30, 48)):
    """Run it, stopped and resumed at these steps."""
    for count in stops:
        with pytest.raises(Stop):
            go(callback=stop_at(count))
    return go()


@pytest.mark.usefixtures("_saved_often")
@pytest.mark.parametrize(
    "recipe",
    [
        "standard",
        "bo4sc",
        "gamma_net_sece",
        "ce_dece",
        "mixup",
        "isoreg",
        recipes.dynamic_pruning(every=2, least=0.2),
        recipes.bo4sc(inner_steps=7, hypergradient=Unrolled()),
    ],
    ids=lambda recipe: recipe if isinstance(recipe, str) else recipe.name,
)
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(recipe, tmp_path):
    assert digest(interrupted(lambda **s: run(recipe, tmp_path, **s))) == digest(run(recipe))


@pytest.mark.usefixtures("_saved_often")
@pytest.mark.parametrize(
    "optimizer", [SGD(lr=1.0), SGD(lr=StepDecay(0.1, (20,)), momentum=0.9)], ids=["plain", "decay"]
)
def test_optimizers_and_early_stopping_are_resumed(optimizer, tmp_path):
    settings = {"optimizer": optimizer, "patience": 3, "max_steps": 200, "evaluate_every": 4}
    whole = run("bo4sc", **settings)
    assert whole.status == "stopped early"
    half = whole.n_steps // 2
    assert digest(interrupted(lambda **s: run("bo4sc", tmp_path, **settings, **s), (half,))) == digest(whole)


@pytest.mark.usefixtures("_saved_often")
def test_waves_of_the_step_size_and_refinement_are_resumed(tmp_path):
    settings = {"optimizer": Adam(lr=CosLog(0.04)), "refine": True, "patience": None}
    resumed = interrupted(lambda **s: run("standard", tmp_path, **settings, **s))
    assert digest(resumed) == digest(run("standard", **settings))


class Chosen:
    """Batches of one's own: the number of the pass decides."""

    def __init__(self, x, y):
        self.x, self.y, self.n_rows = x, y, len(x)

    def __len__(self):
        return 3

    def one_pass(self, number):
        order = torch.randperm(self.n_rows, generator=torch.Generator().manual_seed(number))
        return (Batch(self.x[rows], self.y[rows], rows) for rows in order.tensor_split(3))


def images(x, y):
    pixels = (
        (x.abs() * 60).to(torch.uint8).reshape(-1, 1, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    )
    return ImageBatches(pixels, y, batch_size=32, augment=True)


class Augmented(TensorDataset):
    """Noise from torch's stream on every row that is read."""

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + 0.1 * torch.randn_like(x), y


SHARED = torch.Generator()
KINDS = {
    "tensors": lambda x, y: TensorBatches(x, y, batch_size=32, seed=3),
    "images": images,
    "one's own": Chosen,
    "sequential loader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=32),
    "shuffling loader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True),
    "loader with a generator": lambda x, y: DataLoader(
        TensorDataset(x, y), batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(7)
    ),
    "subset": lambda x, y: DataLoader(
        TensorDataset(x, y), batch_size=8, sampler=SubsetRandomSampler(range(5, len(x)))
    ),
    "weighted": lambda x, y: DataLoader(
        TensorDataset(x, y), batch_size=8, sampler=WeightedRandomSampler(y + 1.0, len(x), generator=SHARED)
    ),
    "sampler told the pass": lambda x, y: DataLoader(
        TensorDataset(x, y), batch_size=8, sampler=DistributedSampler(y, num_replicas=1, rank=0, seed=3)
    ),
    "augmented": lambda x, y: DataLoader(Augmented(x, y), batch_size=32, shuffle=True),
}


@pytest.mark.usefixtures("_saved_often")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_batches_is_resumed(kind, tmp_path):
    def go(folder=tmp_path, **settings):
        SHARED.manual_seed(5)
        parts = [KINDS[kind](*part) for part in data()]
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
        module(
            next(iter(TensorBatches(*data()[0]).one_pass(0))).x
            if kind != "images"
            else torch.zeros(1, 1, 8, 8)
        )
        options = {
            "recipe": recipes.bo4sc(inner_steps=3),
            "optimizer": Adam(),
            "max_steps": 50,
            "evaluate_every": 5,
        }
        return train(module, *parts, **options, checkpoint=folder, checkpoint_seconds=0, **settings)

    assert digest(interrupted(go, (10, 25))) == digest(go(None))


class Own(Sampler):
    """A sampler of one's own, which nobody can look into."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        return iter(torch.randperm(len(self)).tolist())


def test_an_order_that_cannot_be_restored_is_refused_before_training(tmp_path):
    dataset = TensorDataset(*data()[0])
    loader = DataLoader(dataset, batch_size=32, sampler=Own(dataset))
    with pytest.raises(ConfigError, match=r"The order of Own cannot be restored.*method set_epoch"):
        train(network(), loader, recipe=recipes.standard(), optimizer=Adam(), checkpoint=tmp_path)


@pytest.mark.usefixtures("_saved_often")
def test_more_steps_are_allowed_when_a_run_is_resumed(tmp_path):
    """The end of the first run is neither an evaluation nor an outer step of the longer one."""
    recipe = recipes.bo4sc(inner_steps=7, hypergradient=Unrolled())
    first = run(recipe, tmp_path, max_steps=20)
    assert first.n_steps == 20
    assert first.history.selection_step.tolist() == [6, 12, 18, 20]
    assert digest(run(recipe, tmp_path, max_steps=41)) == digest(run(recipe, max_steps=41))
    assert digest(run(recipe, tmp_path)) == digest(run(recipe))
    with pytest.raises(ConfigError, match=r"at least the 60 steps .* got 30"):
        run(recipe, tmp_path, max_steps=30)


@pytest.mark.usefixtures("_saved_often")
def test_a_step_size_that_depends_on_the_number_of_steps_is_not_extended(tmp_path):
    settings = {"optimizer": Adam(lr=CosLog(0.04))}
    run("standard", tmp_path, max_steps=20, **settings)
    with pytest.raises(CheckpointError, match=r"optimizer was .*n_steps=20.* and is .*n_steps=60"):
        run("standard", tmp_path, **settings)


def test_a_run_that_stopped_early_or_by_the_callback_is_not_extended(tmp_path):
    stopped = run("standard", tmp_path, callback=lambda event: event.n_steps >= 12)
    assert (stopped.n_steps, stopped.status) == (12, "stopped by the callback")
    assert digest(run("standard", tmp_path, max_steps=600)) == digest(stopped)


def test_a_finished_run_is_not_run_again(tmp_path):
    first = run("isoreg", tmp_path, callback=lambda event: time.sleep(0.05))
    files = sorted(tmp_path.iterdir())
    again = run("isoreg", tmp_path, callback=lambda event: pytest.fail("a step was taken"))
    assert digest(again) == digest(first)
    assert again.seconds > 10 * 0.05
    assert sorted(tmp_path.iterdir()) == files


def test_numpy_numbers_are_the_same_settings(tmp_path):
    first = run("standard", tmp_path)
    assert digest(run("standard", tmp_path, max_steps=np.int64(60), patience=None)) == digest(first)


def test_frozen_parameters_and_the_callers_random_stream(tmp_path):
    def frozen():
        module = network()
        return module, module[0].requires_grad_(False)

    before = torch.get_rng_state()
    whole = run("standard", module=frozen()[0])
    with pytest.raises(Stop):
        run("standard", tmp_path, module=frozen()[0], callback=stop_at(30))
    other, layer = frozen()
    nn.init.zeros_(layer.weight)
    assert digest(run("standard", tmp_path, module=other)) == digest(whole)
    assert torch.equal(torch.get_rng_state(), before)


def test_classifier(tmp_path):
    X, y = Blobs(std=1.7).sample(200, seed=0)
    settings = {"method": "bo4sc", "random_state": 0, "max_epochs": 60, "patience": None}
    saved = SelfCalibratedClassifier(**settings, checkpoint_dir=tmp_path).fit(X, y)
    again = SelfCalibratedClassifier(**settings, checkpoint_dir=tmp_path).fit(X, y)
    plain = SelfCalibratedClassifier(**settings).fit(X, y)
    for clf in (saved, again):
        np.testing.assert_array_equal(clf.predict_proba(X), plain.predict_proba(X))
    with pytest.raises(CheckpointError, match="belongs to another run: train data was"):
        SelfCalibratedClassifier(**settings, checkpoint_dir=tmp_path).fit(X + 1, y[::-1])
    with pytest.raises(ConfigError, match="checkpoint_dir needs a whole number as random_state"):
        SelfCalibratedClassifier(checkpoint_dir=tmp_path).fit(X, y)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"recipe": "focal"}, r"recipe was Recipe\(name='standard'"),
        ({"optimizer": Adam(lr=0.03)}, r"optimizer was Adam\(lr=0.02"),
        ({"module": nn.Linear(4, 2)}, r"network was Sequential\("),
        ({"seed": 1}, r"seed was 0 and is 1; train data was [0-9a-f]{64}"),
        ({"evaluate_every": 7}, "evaluate_every was 6 and is 7"),
        ({"clip_norm": 1.0}, r"optimizer was Adam\(.* and is Clipped\(rule=Adam"),
        ({"batch_size": 16}, "train data was"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_run_is_refused_by_what_differs(change, named, tmp_path):
    run("standard", tmp_path)
    with pytest.raises(CheckpointError, match=f"belongs to another run: .*{named}") as error:
        run(**{"recipe": "standard", "folder": tmp_path, **change})
    assert error.value.exit_code == 5


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("__version__", "9.9", r"selfcal version was .* and is 9\.9"),
        ("FORMAT", 0, "has format 4; this version of selfcal reads format 0"),
    ],
)
def test_another_version_is_refused(name, value, named, tmp_path, monkeypatch):
    run("standard", tmp_path)
    monkeypatch.setattr(checkpoint, name, value)
    with pytest.raises(CheckpointError, match=named):
        run("standard", tmp_path)


def test_other_threads_are_pointed_out(tmp_path, monkeypatch):
    run("standard", tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    with pytest.warns(RecoveryWarning, match="threads was 1 and is 7.*last bits"):
        run("standard", tmp_path)


class Counting:
    """The smallest thing that can be saved."""

    def __init__(self, count=0):
        self.count, self.can_be_saved = count, True

    def state(self):
        return {"count": self.count, "values": torch.full((50,), float(self.count))}

    def load_state(self, state):
        self.count = state["count"]
        assert (state["values"] == self.count).all()


def generations(folder, **identity):
    return Generations(folder, {"exactly": identity, "bits": {}})


def count_of(work, folder, **settings):
    return checkpointed(work, folder, lambda: {"exactly": {}, "bits": {}}, **{"seconds": 0, **settings})


def test_two_generations_are_kept(tmp_path):
    store = generations(tmp_path)
    paths = [store.save(Counting(count).state()) for count in range(5)]
    assert store.files() == [paths[4], paths[3]]
    assert generations(tmp_path).newest()["count"] == 4


def test_saves_become_rare_where_they_take_long(tmp_path, monkeypatch):
    clock = 0.0
    save = Generations.save

    def slow(self, state):
        nonlocal clock
        clock += 10
        return save(self, state)

    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock)
    monkeypatch.setattr(Generations, "save", slow)
    work, saves = Counting(), []
    with count_of(work, tmp_path, seconds=30) as after_step:
        for _ in range(2000):
            clock += 1
            before = clock
            after_step()
            if clock > before:
                saves.append(before)
    assert saves == [510, 1020, 1530, 2040]


def test_nothing_is_saved_while_steps_are_pending(tmp_path):
    work = Counting()
    work.can_be_saved = False
    with count_of(work, tmp_path) as after_step:
        work.count = 1
        after_step()
        assert generations(tmp_path).newest()["count"] == 0


def test_handlers_are_only_there_while_needed(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen = []
    run("standard", tmp_path, callback=lambda event: seen.append(signal.getsignal(signal.SIGTERM)))
    run("standard", callback=lambda event: seen.append(signal.getsignal(signal.SIGTERM)))
    assert seen[0] != before[1]
    assert seen[-1] == before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_works_in_a_thread(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(digest(run("standard", tmp_path))))
    thread.start()
    thread.join()
    assert found == [digest(run("standard"))]


@pytest.fixture
def two(tmp_path):
    """A folder with a file for count 1 and a newer one for count 2; the newer one."""
    store = generations(tmp_path)
    store.save(Counting(1).state())
    return store.save(Counting(2).state())


def test_cut_off_anywhere_falls_back(two):
    whole = two.read_bytes()
    for size in np.linspace(0, len(whole) - 1, 100).astype(int):
        two.write_bytes(whole[:size])
        with pytest.warns(
            RecoveryWarning, match=rf"{two} cannot be used: .* Resuming from checkpoint-00000001"
        ):
            assert generations(two.parent).newest()["count"] == 1


def test_any_flipped_bit_falls_back(two):
    """Every byte of the header, which has them all: length, braces, names, digest, JSON; and many of the tensors."""
    whole = two.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    places = [*range(header), *random.Random(0).sample(range(header, len(whole)), 100), len(whole) - 1]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(ModelFormatError):
            unpacked(damaged)
    two.write_bytes(damaged)
    with pytest.warns(RecoveryWarning, match="its content does not match its SHA-256"):
        assert generations(two.parent).newest()["count"] == 1


def test_a_damaged_file_never_pushes_out_a_sound_one(two):
    two.write_bytes(b"damaged")
    store = generations(two.parent)
    with pytest.warns(RecoveryWarning):
        store.newest()
    store.save(Counting(3).state())
    assert [unpacked(path.read_bytes())["state"]["count"] for path in store.files()] == [3, 1]


def test_nothing_sound_is_an_error(two):
    for path in generations(two.parent).files():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        CheckpointError, match=r"No intact checkpoint is left in .* Remove the folder"
    ) as error:
        generations(two.parent).newest()
    assert error.value.exit_code == 5
    assert len(generations(two.parent).files()) == 2


def test_other_files_in_the_folder_stay(tmp_path):
    names = ["checkpoint-last.safetensors", "notes.txt", ".hidden"]
    for name in names:
        (tmp_path / name).write_text("mine")
    store = generations(tmp_path)
    for count in range(4):
        store.save(Counting(count).state())
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def signed(content):
    """Bytes with a matching digest, as an attacker would make them."""
    return content.replace(b"0" * 64, hashlib.sha256(content).hexdigest().encode(), 1)


def test_random_and_hostile_files_are_refused_and_nothing_worse(tmp_path):
    """Noise, changed files, and changed files with a matching digest."""
    choose = random.Random(0)
    whole = packed({"format": checkpoint.FORMAT, "identity": {}, "state": Counting(1).state()})
    blank = re.sub(rb'"sha256":"[0-9a-f]{64}"', b'"sha256":"' + b"0" * 64 + b'"', whole)
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    refused = 0
    for case in range(2000):
        if case % 4 == 0:
            content = choose.randbytes(choose.randrange(200))
        else:
            content = bytearray(blank if case % 4 > 1 else whole)
            for _ in range(choose.randrange(1, 4)):
                content[choose.randrange(header if case % 2 else len(content))] = choose.randrange(256)
            content = signed(bytes(content)) if case % 4 > 1 else bytes(content)
        (tmp_path / "checkpoint-00000001.safetensors").write_bytes(content)
        try:
            generations(tmp_path).newest()
        except CheckpointError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize(
    "tree",
    [
        "[]",
        "3",
        "{}",
        f'{{"format": {checkpoint.FORMAT}}}',
        '{"state": {"$tensor": "none"}}',
        '{"a": {"$tensor": []}}',
        "[" * 10_000,
    ],
)
def test_signed_nonsense(tree, tmp_path):
    header = json.dumps({"__metadata__": {"sha256": "0" * 64, "tree": tree}}, separators=(",", ":")).encode()
    content = struct.pack("<Q", len(header)) + header
    (tmp_path / "checkpoint-00000001.safetensors").write_bytes(signed(content))
    with pytest.raises(CheckpointError):
        generations(tmp_path).newest()


def test_the_same_tensor_twice_is_stored_once():
    shared = torch.arange(1000.0)
    assert len(packed({"a": shared, "b": [shared]})) < len(packed({"a": shared})) + 100
    tree = unpacked(packed({"a": shared, "b": [shared, shared[::2], math.inf, "$tensor", None, True]}))
    assert torch.equal(tree["b"][0], shared)
    assert torch.equal(tree["b"][1], shared[::2])
    assert tree["b"][2:] == [math.inf, "$tensor", None, True]


def test_what_cannot_be_saved_is_a_bug_and_says_so():
    with pytest.raises(TypeError, match="cannot save a set"):
        packed({"a": {1}})


def squares(z, y):
    """Gradient descent on it runs away if its step is too long, and comes back once it is not."""
    return ((z - nn.functional.one_hot(y, 2)) ** 2).sum(dim=1)


STEEP = {"optimizer": SGD(lr=2.5), "batch_size": None, "max_steps": 200}


def linear():
    module = nn.Linear(4, 2)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return module


def steep(folder=None, **settings):
    recipe = Recipe(name="squares", loss=squares)
    return run(recipe, folder, module=linear(), **{**STEEP, **settings})


def test_a_run_that_runs_away_comes_back_with_half_the_step_size():
    with pytest.warns(RecoveryWarning, match=r"at step \[\d+, \d+\].*half the learning rate.*SGD\(lr=0.625"):
        result = steep()
    history = result.history
    first, second = history.rollback_step
    assert 10 < first < second < 200
    assert result.n_steps == len(history.inner_loss) == 200
    assert np.isfinite(history.inner_loss).all()
    assert history.inner_loss[-1] < 1 < history.inner_loss.max()
    assert (np.diff(history.selection_step) > 0).all()
    assert torch.isfinite(result.module.weight).all()


@pytest.mark.usefixtures("_saved_often")
@pytest.mark.filterwarnings("ignore::selfcal.errors.RecoveryWarning")
def test_roll_backs_are_resumed_too(tmp_path):
    """Stopped between the last good place and the failure, and again after it."""
    whole = steep()
    first = int(whole.history.rollback_step[0])
    go = lambda **settings: steep(tmp_path, **settings)  # noqa: E731
    assert digest(interrupted(go, (first - 2, first + 20))) == digest(whole)


def test_a_loss_that_fails_once(tmp_path):
    calls = []

    def once(z, y):
        calls.append(1)
        return nn.functional.cross_entropy(z, y, reduction="none") * (math.nan if len(calls) == 20 else 1)

    with pytest.warns(RecoveryWarning, match=r"at step \[20\]"):
        result = run(Recipe(name="once", loss=once))
    assert result.history.rollback_step.tolist() == [20]
    assert len(result.history.inner_loss) == 60


def test_a_loss_that_always_fails_says_where_and_with_what():
    (x, y), *others = data()
    x = x.clone()
    x[7, 2] = 1e38
    with pytest.raises(
        TrainingError,
        match=r"became (inf|nan) at step 1 with SGD\(lr=0.0125,.*between -\d.* and 1e\+38.*"
        "rolled back 3 times before",
    ) as error:
        train(
            network()[4],
            (x.repeat(1, 2), y),
            *others[1:],
            recipe=Recipe(name="s", loss=squares),
            optimizer=SGD(lr=0.1),
        )
    assert error.value.exit_code == 4


def test_a_rule_without_a_step_size_fails_at_once():
    class Fixed(SGD):
        def slowed(self, factor):
            return None

    with pytest.raises(
        TrainingError, match=r"Lower the learning rate, or look for extreme values.*features\.$"
    ):
        steep(optimizer=Fixed(lr=2.5))


def test_parameters_that_overflow_are_never_the_best():
    """The loss is finite before the step that ruins them, and a ruined network must not be looked at."""
    looked = []
    with pytest.raises(TrainingError, match="Parameters became infinite"):
        run(
            Recipe(name="steep", loss=lambda z, y: 1e6 * squares(z, y)),
            optimizer=SGD(lr=3e38),
            evaluate_every=1,
            callback=lambda event: looked.append(event.n_steps),
        )
    assert looked == []
