"""Trees as a module, against the classifiers of scikit-learn that they were made from."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from selfcal.ensembles.modules import EnsembleModule
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.spec import Builder
from selfcal.models.trees import TreeColumns, Trees, masks, module, steps
from selfcal.models.trees.leaves import fixed_point
from selfcal.models.trees.masks import MAX_LEAVES
from selfcal.models.trees.module import MIN_PROBABILITY, _rounded_down
from selfcal.models.trees.nodes import MAX_DEPTH, in_order, left_children, levels
from selfcal.tabular.features import FeatureGroups

GROUPS = FeatureGroups(missing=((0, 3), (2, 4)), categories=((5, 9), (10, 13)))
"""Of 13 features; those at 1 and 9 are plain numbers."""
COLUMNS = TreeColumns(13, GROUPS)


def encoded(seed, n=200):
    """Rows as the preprocessor encodes them; one level in five is unknown."""
    rng = np.random.default_rng(seed)
    missing = rng.random((n, 2)) < 0.3
    numbers = rng.normal(size=(n, 4)).round(1)
    numbers[:, [0, 2]] *= ~missing
    levels = [rng.integers(-1, size, n)[:, None] == np.arange(size) for size in (4, 3)]
    x = np.column_stack([numbers[:, :3], missing, levels[0], numbers[:, 3], levels[1]])
    return torch.from_numpy(x.astype(np.float32))


def labels(x, n_classes, seed=0):
    """Depend on a number, on whether it is missing, and on a category."""
    score = x[:, 0] + 2 * x[:, 3] + 1.5 * x[:, 6] - x[:, 11] + 0.5 * x[:, 1] * x[:, 9]
    noise = np.random.default_rng(seed).normal(scale=0.5, size=len(x))
    return (score.numpy() + noise).argsort().argsort() * n_classes // len(x)


def boosting(**options):
    options = {"max_iter": 12, "max_leaf_nodes": 8, "early_stopping": False, "min_samples_leaf": 5} | options
    return HistGradientBoostingClassifier(random_state=0, **options)


def same_probabilities(trees, model, x, columns=COLUMNS):
    probs = trees(x).softmax(dim=1).double().numpy()
    expected = np.zeros_like(probs)
    expected[:, model.classes_] = model.predict_proba(columns(x).numpy())
    if trees.averaged:
        expected = expected.clip(MIN_PROBABILITY)
        expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probs, expected, rtol=0, atol=1e-6)
    return probs


CLASSIFIERS = {
    "boosting": boosting(categorical_features=COLUMNS.categorical),
    "numbers only": boosting(),
    "one category": boosting(categorical_features=COLUMNS.categorical[1:]),
    "deep boosting": boosting(
        max_leaf_nodes=None, min_samples_leaf=1, categorical_features=COLUMNS.categorical
    ),
    "stumps": boosting(max_leaf_nodes=2, categorical_features=COLUMNS.categorical),
    "single leaves": boosting(min_samples_leaf=150),
    "extra trees": ExtraTreesClassifier(10, random_state=0),
    "random forest": RandomForestClassifier(10, max_depth=4, random_state=0),
    "forest of roots": RandomForestClassifier(3, min_samples_leaf=150, random_state=0),
}


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_probabilities_of_scikit_learn(name, n_classes, weighted):
    x = encoded(0)
    y, weight = labels(x, n_classes), np.random.default_rng(0).gamma(1.0, size=len(x))
    model = CLASSIFIERS[name].fit(COLUMNS(x).numpy(), y, sample_weight=weight if weighted else None)
    trees = Trees.of(model, COLUMNS, n_classes)
    for rows in (x, encoded(1), encoded(2, n=1)):
        probs = same_probabilities(trees, model, rows)
    assert probs.shape == (1, n_classes)
    assert trees(x[:0]).shape == (0, n_classes)
    assert trees(x).dtype == torch.float32


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    n_classes=st.integers(2, 4),
    n_values=st.integers(1, 40),
    leaves=st.integers(2, 40),
    forest=st.booleans(),
)
def test_random_tables(seed, n_classes, n_values, leaves, forest):
    """Few different values, so that many are thresholds or missing, and columns may be constant."""
    rng = np.random.default_rng(seed)
    x, new = (rng.integers(-n_values, n_values, (n, 5)) / rng.integers(1, 9, 5) for n in (80, 200))
    x[rng.random(x.shape) < 0.1] = np.nan
    new[rng.random(new.shape) < 0.2] = np.nan
    x, new = x.astype(np.float32), torch.from_numpy(new.astype(np.float32))
    y = rng.permutation(np.arange(len(x)) % n_classes)
    options = {"max_leaf_nodes": leaves, "random_state": seed}
    if forest:
        x, new = np.nan_to_num(x), new.nan_to_num()
        model = ExtraTreesClassifier(4, **options)
    else:
        model = HistGradientBoostingClassifier(
            max_iter=4, min_samples_leaf=2, early_stopping=False, **options
        )
    trees = Trees.of(model.fit(x, y), TreeColumns(5), n_classes)
    same_probabilities(trees, model, new, TreeColumns(5))


def test_binary_boosting_has_its_score_against_zero():
    x = encoded(0)
    model = boosting().fit(COLUMNS(x).numpy(), labels(x, 2))
    logits = Trees.of(model, COLUMNS, 2)(x).numpy()
    assert (logits[:, 0] == 0).all()
    np.testing.assert_allclose(
        logits[:, 1], model.decision_function(COLUMNS(x).numpy()), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("model", "present"),
    [
        (boosting(), [1, 3]),
        (boosting(), [0, 2, 4]),
        (RandomForestClassifier(5, random_state=0), [0, 2, 4]),
        (RandomForestClassifier(5, random_state=0), [4]),
    ],
)
def test_a_class_that_did_not_occur_is_very_unlikely(model, present):
    x = encoded(0)
    model.fit(COLUMNS(x).numpy(), np.array(present)[labels(x, len(present))])
    probs = same_probabilities(Trees.of(model, COLUMNS, 5), model, x)
    absent = np.delete(probs, present, axis=1)
    assert (absent > 0).all()
    assert absent.max() < 1e-5


def test_a_category_that_did_not_occur_goes_with_the_missing_ones():
    x = encoded(0)
    kept = x[x[:, 6] == 0]
    model = boosting(categorical_features=COLUMNS.categorical).fit(COLUMNS(kept).numpy(), labels(kept, 2))
    trees = Trees.of(model, COLUMNS, 2)
    unseen = x[x[:, 6] == 1]
    unknown = unseen.clone()
    unknown[:, 6] = 0
    assert trees.n_category_splits > 0
    assert torch.equal(trees(unseen), trees(unknown))
    same_probabilities(trees, model, unseen)


@pytest.mark.parametrize("name", ["boosting", "deep boosting", "extra trees"])
def test_blocks_traces_and_groups_of_steps_change_nothing(monkeypatch, name):
    x = encoded(0)
    trees = Trees.of(CLASSIFIERS[name].fit(COLUMNS(x).numpy(), labels(x, 3)), COLUMNS, 3)
    expected = trees(x)
    for size in (1, 3, 100):
        monkeypatch.setattr(steps, "STEPS_TOGETHER", size)
        assert torch.equal(trees(x), expected)
    for rows, n_trees in ((1, 1), (7, 5)):
        monkeypatch.setattr(module, "BLOCK_PLACES", rows * trees.n_trees)
        monkeypatch.setattr(module, "BLOCK_ROWS", rows)
        monkeypatch.setattr(masks, "BLOCK_TREES", n_trees)
        assert torch.equal(trees(x), expected)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(trees(x), expected, rtol=0, atol=1e-6)


class TestMasks:
    """Against steps from node to node, which the tests above compare with scikit-learn."""

    @settings(deadline=None, max_examples=25)
    @given(
        seed=st.integers(0, 10_000),
        n_classes=st.integers(2, 4),
        leaves=st.integers(2, MAX_LEAVES),
        shallow=st.booleans(),
    )
    def test_the_same_leaves_and_sums(self, seed, n_classes, leaves, shallow):
        x = encoded(seed)
        model = boosting(
            max_leaf_nodes=leaves,
            max_depth=3 if shallow else None,
            categorical_features=COLUMNS.categorical[seed % 3 :],
        )
        trees = Trees.of(model.fit(COLUMNS(x).numpy(), labels(x, n_classes, seed)), COLUMNS, n_classes)
        assert trees.masks is not None
        new = COLUMNS(encoded(seed + 1, n=300))
        new[:50, :4] = torch.tensor([torch.inf, -torch.inf, torch.nan, 0, 3e38]).repeat(40).view(50, 4)
        assert torch.equal(trees.masks(new), trees.leaves(trees.steps(new)))

    def trees(self, n_trees, is_leaf, threshold):
        """Trees of one column, whose leaves have the values 1, 2 and so on."""
        sizes = {"n_trees": n_trees, "n_splits": len(threshold), "n_category_splits": 0}
        trees = Trees(TreeColumns(1), 2, **sizes, n_probabilities=None, outputs=[1])
        trees.is_leaf.copy_(torch.tensor(is_leaf))
        trees.threshold.copy_(torch.tensor(threshold))
        trees.category.fill_(-1)
        trees.value.copy_(torch.arange(1.0, len(trees.value) + 1))
        trees.load_state_dict(trees.state_dict())
        return trees

    def test_all_shapes_of_small_trees(self):
        """From a chain to a complete tree: the numbers from 0 on in a leaf each, divided at random."""
        x = torch.arange(-1.0, MAX_LEAVES + 1)[:, None]
        rng = np.random.default_rng(0)
        for n_leaves in [*range(2, MAX_LEAVES + 1)] * 3:
            level, is_leaf, threshold = [(0, n_leaves)], [], []
            while level:
                is_leaf += [stop - start == 1 for start, stop in level]
                inner = [
                    (start, stop, rng.integers(start + 1, stop)) for start, stop in level if stop - start > 1
                ]
                threshold += [cut - 0.5 for *_, cut in inner]
                level = [part for start, stop, cut in inner for part in ((start, cut), (cut, stop))]
            trees = self.trees(1, is_leaf, threshold)
            leaf = trees.masks(x)
            assert torch.equal(leaf, trees.leaves(trees.steps(x)))
            assert len(leaf.unique()) == n_leaves

    @pytest.mark.parametrize("name", ["deep boosting", "single leaves", "extra trees", "random forest"])
    def test_other_trees_go_step_by_step(self, name):
        x = encoded(0)
        trees = Trees.of(CLASSIFIERS[name].fit(COLUMNS(x).numpy(), labels(x, 3)), COLUMNS, 3)
        assert trees.masks is None

    def test_more_thresholds_than_ranks(self):
        x = torch.arange(-1.0, 300.0)[:, None]
        for n_trees, ranked in ((255, True), (256, False)):
            trees = self.trees(n_trees, [False] * n_trees + [True] * 2 * n_trees, range(n_trees))
            assert (trees.masks is not None) == ranked
            right = (x.long() - torch.arange(n_trees)).clamp(0, 1)
            expected = (1 + right + 2 * torch.arange(n_trees)).sum(dim=1)
            assert torch.equal(trees(x)[:, 1], expected.float())

    def test_trees_of_very_different_size(self):
        """Masks as long as that of the largest tree would be a waste, and large for a small file."""
        chain = [False, *[True] * 999, *[True, False] * 29, True, True]
        assert self.trees(1000, chain, [0.0] * 30).masks is None


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1), st.integers(1, 10_000))
def test_scores_in_fixed_point(values, n_trees):
    value = np.array(values)
    integers, unit = fixed_point(value, n_trees)
    assert n_trees * int(np.abs(integers).max()) < 2**63
    np.testing.assert_allclose(integers * unit, value, rtol=0, atol=n_trees * np.abs(value).max() * 2.0**-60)


class TestForestsOfManyClasses:
    N_CLASSES = 60

    def rows(self):
        rng = np.random.default_rng(0)
        y = np.arange(600) % self.N_CLASSES
        x = rng.normal(size=(self.N_CLASSES, 5))[y] + rng.normal(size=(len(y), 5))
        return torch.from_numpy(x.astype(np.float32)), y

    def test_a_leaf_of_one_class_has_one_number(self):
        x, y = self.rows()
        model = ExtraTreesClassifier(10, random_state=0).fit(x.numpy(), y)
        trees = Trees.of(model, TreeColumns(5), self.N_CLASSES)
        n_leaves = sum(tree.tree_.n_leaves for tree in model.estimators_)
        assert trees.n_probabilities == n_leaves
        assert sum(buffer.nbytes for buffer in trees.state_dict().values()) < 30 * n_leaves
        same_probabilities(trees, model, x, TreeColumns(5))

    @pytest.mark.parametrize("options", [{"min_samples_leaf": 4}, {"max_depth": 2}, {"bootstrap": True}])
    def test_leaves_of_several_classes(self, monkeypatch, options):
        x, y = self.rows()
        model = ExtraTreesClassifier(7, random_state=0, **options).fit(x.numpy(), y)
        trees = Trees.of(model, TreeColumns(5), self.N_CLASSES)
        same_probabilities(trees, model, x, TreeColumns(5))
        expected = trees(x)
        for rows in (1, 9):
            assert torch.equal(torch.cat([trees(block) for block in x.split(rows)]), expected)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        torch.testing.assert_close(trees(x), expected, rtol=0, atol=1e-6)


def test_copies_and_members_of_ensembles():
    x = encoded(0)
    made = [
        Trees.of(CLASSIFIERS[name].fit(COLUMNS(x).numpy(), labels(x, 3)), COLUMNS, 3)
        for name in ("boosting", "extra trees")
    ]
    for trees in made:
        assert torch.equal(copy.deepcopy(trees)(x), trees(x))
        assert torch.equal(pickle.loads(pickle.dumps(trees))(x), trees(x))
    mean = torch.stack([trees(x).softmax(dim=1) for trees in made]).mean(dim=0)
    torch.testing.assert_close(EnsembleModule(made)(x).softmax(dim=1), mean, rtol=0, atol=1e-5)


class TestMergedForests:
    @pytest.fixture
    def fitted(self):
        """Forests of different size and depth, each fitted on other rows."""
        models = [
            ExtraTreesClassifier(9, random_state=0),
            RandomForestClassifier(7, max_depth=3, random_state=1),
        ]
        tables = [COLUMNS(encoded(seed)).nan_to_num(-1).numpy() for seed in (0, 1)]
        return [
            model.fit(table, labels(encoded(seed), 3))
            for seed, (model, table) in enumerate(zip(models, tables, strict=True))
        ]

    def test_the_mean_of_the_first_trees(self, fitted):
        columns = TreeColumns(COLUMNS.n_columns)
        x = COLUMNS(encoded(2)).nan_to_num(-1)
        merged = Trees.merged([Trees.of(model, columns, 3) for model in fitted], 5)
        first = [tree for model in fitted for tree in model.estimators_[:5]]
        expected = np.mean([tree.predict_proba(x.numpy()) for tree in first], axis=0)
        assert merged.n_trees == 10
        np.testing.assert_allclose(merged(x).softmax(dim=1), expected, rtol=0, atol=1e-5)
        again = Trees.from_spec(merged.spec(), Builder(COLUMNS.n_columns, 3))
        again.load_state_dict(merged.state_dict())
        assert torch.equal(again(x), merged(x))

    def test_all_trees_of_one_forest(self, fitted):
        trees = Trees.of(fitted[0], TreeColumns(COLUMNS.n_columns), 3)
        merged = Trees.merged([trees], 9)
        assert all(
            torch.equal(value, trees.state_dict()[name]) for name, value in merged.state_dict().items()
        )

    def test_other_classes_and_boosting_are_refused(self, fitted):
        x = encoded(0)
        columns = TreeColumns(COLUMNS.n_columns)
        few = ExtraTreesClassifier(9).fit(COLUMNS(x).nan_to_num(-1).numpy(), labels(x, 2))
        for other in (few, boosting().fit(COLUMNS(x).numpy(), labels(x, 3))):
            with pytest.raises(ConfigError, match="the same classes"):
                Trees.merged([Trees.of(fitted[0], columns, 3), Trees.of(other, columns, 3)], 5)


def test_a_copy_with_other_arrays_uses_them():
    x = encoded(0)
    model = boosting().fit(COLUMNS(x).numpy(), labels(x, 2))
    trees = Trees.of(model, COLUMNS, 2)
    other = copy.deepcopy(trees)
    state = trees.state_dict() | {"value": -trees.value, "base": -trees.base}
    other.load_state_dict(state)
    torch.testing.assert_close(other(x), -trees(x))


def test_boosting_stored_before_forests_were_compact():
    x = encoded(0)
    trees = Trees.of(boosting().fit(COLUMNS(x).numpy(), labels(x, 2)), COLUMNS, 2)
    spec = trees.spec() | {"averaged": False}
    del spec["n_probabilities"]
    again = Trees.from_spec(spec, Builder(13, 2))
    again.load_state_dict(trees.state_dict())
    assert torch.equal(again(x), trees(x))


class TestDamagedArrays:
    """All of them are checked when they are loaded."""

    def trees(self):
        x = encoded(0)
        model = boosting(categorical_features=COLUMNS.categorical).fit(COLUMNS(x).numpy(), labels(x, 2))
        return Trees.of(model, COLUMNS, 2)

    @pytest.mark.parametrize("value", [-1, COLUMNS.n_columns, 2**31 - 1, -(2**31)])
    @pytest.mark.parametrize("name", ["column", "category"])
    def test_indices(self, name, value):
        trees = self.trees()
        state = copy.deepcopy(trees.state_dict())
        place = (trees.category >= 0).nonzero()[0]
        state[name][place] = value
        if (name, value) == ("category", -1) or (name, value) == ("category", COLUMNS.n_columns):
            trees.load_state_dict(state)  # another split, but a valid one
            assert trees(encoded(0)).isfinite().all()
            return
        with pytest.raises(ModelFormatError, match="must split the 6 columns"):
            trees.load_state_dict(state)

    def test_a_category_split_of_a_number(self):
        trees = self.trees()
        state = copy.deepcopy(trees.state_dict())
        state["column"][(trees.category >= 0).nonzero()[0]] = 0
        with pytest.raises(ModelFormatError, match="must split"):
            trees.load_state_dict(state)

    @pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
    def test_thresholds(self, value):
        trees = self.trees()
        state = copy.deepcopy(trees.state_dict())
        state["threshold"][0] = value
        with pytest.raises(ModelFormatError, match="finite thresholds"):
            trees.load_state_dict(state)

    @pytest.mark.parametrize("value", [np.inf, -np.inf])
    def test_scores(self, value):
        trees = self.trees()
        state = copy.deepcopy(trees.state_dict())
        state["value"][3] = value
        with pytest.raises(ModelFormatError, match="finite scores"):
            trees.load_state_dict(state)

    @pytest.mark.parametrize("node", [0, 5, -1])
    def test_nodes(self, node):
        trees = self.trees()
        state = copy.deepcopy(trees.state_dict())
        state["is_leaf"][node] ^= True
        with pytest.raises(ModelFormatError, match="nodes must form 12 trees"):
            trees.load_state_dict(state)


def test_models_that_cannot_be_read():
    x = encoded(0)
    rows, y = COLUMNS(x).numpy(), labels(x, 2)
    for model in (LogisticRegression(), boosting(), object()):
        with pytest.raises(ConfigError, match="must be a fitted HistGradientBoostingClassifier"):
            Trees.of(model, COLUMNS, 2)
    with pytest.raises(ConfigError, match=r"on the 13 columns that TreeColumns makes; it was fitted on 6"):
        Trees.of(boosting().fit(rows, y), TreeColumns(13), 2)
    with pytest.raises(ConfigError, match=r"among \[4, 5\].*got \[0\]"):
        Trees.of(boosting(categorical_features=[0]).fit(rows.round(), y), COLUMNS, 2)
    with pytest.raises(ConfigError, match=r"codes from 0 to 1; got \[1, 2\]"):
        Trees.of(boosting().fit(rows, y + 1), COLUMNS, 2)


class TestColumns:
    def test_none_are_grouped(self):
        x = encoded(0)
        assert TreeColumns(13)(x) is x
        assert TreeColumns(13).categorical == []

    def test_numbers_and_codes(self):
        x = encoded(0, n=50)
        rows = COLUMNS(x).numpy()
        assert rows.shape == (50, COLUMNS.n_columns) == (50, 6)
        np.testing.assert_array_equal(rows[:, :2], x[:, [1, 9]])
        for place, (number, indicator) in enumerate(GROUPS.missing, start=2):
            expected = np.where(x[:, indicator] == 1, np.nan, x[:, number])
            np.testing.assert_array_equal(rows[:, place], expected)
        for place, (start, stop) in zip(COLUMNS.categorical, GROUPS.categories, strict=True):
            block = x[:, start:stop].numpy()
            expected = np.where(block.any(axis=1), block.argmax(axis=1), np.nan)
            np.testing.assert_array_equal(rows[:, place], expected)
        assert COLUMNS.n_levels == [4, 3]

    def test_standardised_features(self):
        x = encoded(0)
        scaled = (x - x.mean(dim=0)) / x.std(dim=0)
        expected = COLUMNS(x)
        assert torch.equal(COLUMNS(scaled).isnan(), expected.isnan())
        assert torch.equal(COLUMNS(scaled)[:, 4:].nan_to_num(-1), expected[:, 4:].nan_to_num(-1))

    def test_a_block_of_many_levels_stays(self):
        columns = TreeColumns(300 + 255, FeatureGroups(categories=((0, 300), (300, 555))))
        x = torch.zeros(2, 555)
        x[0, 299] = x[0, 554] = x[1, 300] = 1
        rows = columns(x)
        assert (columns.n_columns, columns.categorical, columns.n_levels) == (301, [300], [255])
        assert torch.equal(rows[:, :300], x[:, :300])
        assert rows[:, 300].tolist() == [254, 0]

    def test_groups_of_other_features(self):
        with pytest.raises(ConfigError, match=r"of the 12 features at hand; got some of the first 13"):
            TreeColumns(12, GROUPS)


@given(
    threshold=st.floats(allow_nan=False, allow_infinity=False) | st.floats(width=32, allow_nan=False),
    x=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_rounded_thresholds_compare_as_before(threshold, x):
    threshold = max(threshold, -3e38)  # thresholds are between two numbers of single precision
    rounded = _rounded_down(np.array([threshold]))[0]
    assert np.isfinite(rounded)
    for number in (x, float(rounded), float(np.nextafter(rounded, np.float32(3e38)))):
        assert (np.float32(number) <= rounded) == (number <= threshold)


class TestNodes:
    @given(seed=st.integers(0, 10_000), n_trees=st.integers(1, 5))
    def test_the_order_needs_no_pointers(self, seed, n_trees):
        """Children that were anywhere are where `left_children` says."""
        rng = np.random.default_rng(seed)
        left, right, roots = [], [], []
        for _ in range(n_trees):
            roots.append(len(left))
            left.append(-1)
            right.append(-1)
            for _ in range(rng.integers(0, 8)):
                leaves = [node for node in range(roots[-1], len(left)) if left[node] < 0]
                node = leaves[rng.integers(len(leaves))]
                first, second = rng.permutation([len(left), len(left) + 1])
                left[node], right[node] = first, second
                left += [-1, -1]
                right += [-1, -1]
        left, right = np.array(left), np.array(right)
        order = in_order(left, right, np.array(roots))
        assert sorted(order) == list(range(len(left)))
        is_leaf = left[order] < 0
        child = left_children(is_leaf, n_trees)
        for new, old in enumerate(order):
            if is_leaf[new]:
                assert child[new] == new
            else:
                assert order[child[new]] == left[old]
                assert order[child[new] + 1] == right[old]

    @pytest.mark.parametrize(
        ("is_leaf", "n_trees"),
        [([True], 2), ([True, True], 1), ([False], 1), ([False, True], 1), ([False] * 3, 1),
         ([True, False, True], 1), ([False, True, True, True], 1), ([True], 0), ([], 1)],
    )  # fmt: skip
    def test_what_does_not_form_trees(self, is_leaf, n_trees):
        with pytest.raises(ModelFormatError, match=f"must form {n_trees} trees"):
            levels(np.array(is_leaf, dtype=bool), n_trees)

    def test_the_depth_is_bounded(self):
        chain = [False, *[True, False] * (MAX_DEPTH - 1), True, True]
        assert len(levels(np.array(chain), 1)) == MAX_DEPTH + 1
        deeper = [False, *[True, False] * MAX_DEPTH, True, True]
        with pytest.raises(ModelFormatError, match=f"at most {MAX_DEPTH}; got {MAX_DEPTH + 1}"):
            levels(np.array(deeper), 1)
