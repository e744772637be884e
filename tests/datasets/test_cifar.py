import os
import pickle
import warnings

import numpy as np
import pytest

from selfcal.datasets import load_images
from selfcal.datasets._cifar import plain_pickle
from selfcal.errors import DataError
from tests.datasets import image_files as files


@pytest.fixture
def folder(tmp_path):
    files.write_cifar10(tmp_path)
    return tmp_path / "cifar-10-batches-py"


def test_the_files_of_these_tests_are_pickles_as_python_2_wrote_them():
    """The writer of the tests, checked with pickle itself."""
    part = files.cifar_part(300, "labels")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy.core, as it was called then
        loaded = pickle.loads(files.python2_pickle(part), encoding="bytes")
    np.testing.assert_array_equal(loaded[b"data"], part["data"])
    assert loaded[b"labels"] == part["labels"]
    assert loaded[b"filenames"] == [name.encode() for name in part["filenames"]]


def test_cifar10(tmp_path):
    parts = files.write_cifar10(tmp_path)
    found = load_images("cifar10", tmp_path)
    train = [parts[f"data_batch_{i}"] for i in range(1, 6)]
    expected = np.concatenate([part["data"] for part in train]).reshape(-1, 3, 32, 32)
    np.testing.assert_array_equal(found.x_train, expected)
    np.testing.assert_array_equal(found.y_train, [code for part in train for code in part["labels"]])
    np.testing.assert_array_equal(found.x_test.reshape(-1, 3072), parts["test_batch"]["data"])
    np.testing.assert_array_equal(found.y_test, parts["test_batch"]["labels"])
    assert found.classes[:2] == ("class 0", "class 1")


def test_cifar100_has_the_fine_labels(tmp_path):
    parts = files.write_cifar100(tmp_path)
    found = load_images("cifar100", tmp_path)
    np.testing.assert_array_equal(found.x_train.reshape(-1, 3072), parts["train"]["data"])
    np.testing.assert_array_equal(found.y_train, parts["train"]["fine_labels"])
    np.testing.assert_array_equal(found.y_test, parts["test"]["fine_labels"])
    assert len(found.classes) == 100


class Call:
    """An object whose pickle calls a function when it is opened."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def gadgets(canary):
    touch = f"open({str(canary)!r}, 'w')"
    return {
        "os.system": Call(os.system, f"touch {canary}"),
        "eval": Call(eval, touch),
        "exec": Call(exec, touch),
        "open": Call(open, str(canary), "w"),
        "np.save": Call(np.save, str(canary), [1]),
        "np.fromfile": Call(np.fromfile, __file__),
        "np.load": Call(np.load, str(canary), None, True),
        "loads": Call(pickle.loads, pickle.dumps(Call(os.system, f"touch {canary}"))),
        "nested": Call(dict, [("a", [Call(os.system, f"touch {canary}")])]),
    }


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("gadget", gadgets(""))
@pytest.mark.parametrize("place", ["top", "data", "labels", "key"])
def test_a_pickle_that_calls_something_is_refused_and_nothing_happens(folder, place, gadget, protocol):
    canary = folder / "canary.npy"
    evil = gadgets(canary)[gadget]
    part = files.cifar_part(4, "labels")
    content = {"top": evil, "data": part | {"data": evil}, "labels": part | {"labels": [0, [evil]]}}.get(
        place, {("deep", evil): 1}
    )
    (folder / "data_batch_2").write_bytes(pickle.dumps(content, protocol))
    with pytest.raises(DataError, match=r"data_batch_2: it (has the step|refers to) .*nothing was run"):
        load_images("cifar10", folder.parent)
    assert not canary.exists()


def raw_programs(canary):
    """Pickles written step by step, each with a way of its own to reach a function."""
    command = f"touch {canary}".encode()
    short = b"U" + bytes([len(command)]) + command
    system = b"cos\nsystem\n"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return {
        "global and reduce": b"\x80\x02" + system + short + b"\x85R.",
        "protocol 0": b"cos\nsystem\n(S'" + command + b"'\ntR.",
        "INST": b"(S'" + command + b"'\nios\nsystem\n.",
        "OBJ": b"(" + system + short + b"o.",
        "NEWOBJ": b"\x80\x02csubprocess\nPopen\n" + short + b"\x85\x81.",
        "NEWOBJ_EX": b"\x80\x04csubprocess\nPopen\n" + short + b"\x85}\x92.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93" + short + b"\x85R.",
        "extension": b"\x80\x02\x82\x01.",
        "persistent": b"Pcanary\n.",
        "binary persistent": b"U\x01xQ.",
        "dotted name": b"\x80\x02cnumpy\nndarray.tofile\n.",
        "name with a space": b"\x80\x02cnumpy dtype\nx\n.",
        "array whose state calls": b"\x80\x02" + array + system + short + b"\x85Rb.",
        "class changed by BUILD": b"\x80\x02cnumpy\nndarray\n}U\x0c__setstate__"
        + system
        + b"sb"
        + short
        + b"b.",
        "program behind the end": b"\x80\x02}." + system + short + b"\x85R.",
        "huge number of an entry": b"\x80\x02}r\xff\xff\xff\x0f.",
        "buffer": b"\x80\x05\x97.",
        "frame": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    }


@pytest.mark.parametrize("program", raw_programs(""))
def test_programs_written_by_hand_are_refused_and_nothing_happens(folder, program):
    canary = folder / "canary"
    (folder / "batches.meta").write_bytes(raw_programs(canary)[program])
    with pytest.raises(DataError, match=r"Could not read .*batches\.meta"):
        load_images("cifar10", folder.parent)
    assert not canary.exists()


@pytest.mark.parametrize(
    "program", ["global and reduce", "INST", "OBJ", "STACK_GLOBAL", "array whose state calls"]
)
def test_with_pickle_itself_the_same_programs_do_run(tmp_path, program):
    """So that the tests above could fail."""
    canary = tmp_path / "canary"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            pickle.loads(raw_programs(canary)[program])
        except (TypeError, ValueError):
            assert program == "array whose state calls"  # by then it has run
    assert canary.exists()


def test_what_stands_for_numpy_only_records():
    """An array as large as a pickle likes and a state that makes no sense: NumPy never hears of them."""
    program = b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85RU\x01xb."
    record = plain_pickle(program)
    assert (record.name, record.arguments, record.state) == ("ndarray", (2**31 - 1,), b"x")


GOOD = files.cifar_part(4, "labels")


@pytest.mark.parametrize(
    ("content", "wording"),
    [
        ([1, 2], "expected a dictionary with 'data'"),
        ({"labels": [1]}, "expected a dictionary with 'data'"),
        ({"data": GOOD["data"]}, "expected a dictionary with 'labels'"),
        (GOOD | {"data": [1, 2]}, "data must be an array of bytes"),
        (GOOD | {"data": GOOD["data"].astype(np.uint16)}, "data must be an array of bytes"),
        (GOOD | {"data": GOOD["data"][:, :-1]}, r"rows of 3072 bytes .* shape \(4, 3071\)"),
        (GOOD | {"data": GOOD["data"][:-1]}, r"shape \(3, 3072\) and 4 labels"),
        (GOOD | {"labels": (0, 1, 2, 3)}, "labels must be a list of whole numbers"),
        (GOOD | {"labels": [0, 1, 2, "3"]}, "labels must be a list of whole numbers"),
        (GOOD | {"labels": [0, 1, 2, True]}, "labels must be a list of whole numbers"),
        (GOOD | {"labels": [0, 1, 2, 10]}, r"y_test must lie in 0 \.\.\. 9"),
        (GOOD | {"labels": [0, 1, 2, -1]}, r"y_test must lie in 0 \.\.\. 9"),
    ],
)
def test_contents_that_are_not_the_data_set(folder, content, wording):
    (folder / "test_batch").write_bytes(files.python2_pickle(content))
    with pytest.raises(DataError, match=wording):
        load_images("cifar10", folder.parent)


def test_arrays_that_contradict_themselves(folder):
    content = files.python2_pickle(GOOD)
    for wrong in (content.replace(b"M\x00\x0c", b"M\x01\x0c"), content.replace(b"U\x02u1", b"U\x02i1")):
        assert wrong != content
        (folder / "test_batch").write_bytes(wrong)
        with pytest.raises(DataError, match="test_batch: data must be an array of bytes"):
            load_images("cifar10", folder.parent)


def test_a_file_of_impossible_size_is_not_read(folder):
    with open(folder / "data_batch_3", "wb") as file:
        file.truncate(10**12)  # a hole, which takes no room on disk
    with pytest.raises(DataError, match=r"data_batch_3: it has 1,000,000,000,000 bytes"):
        load_images("cifar10", folder.parent)


def test_names_of_classes_that_are_no_names(folder):
    (folder / "batches.meta").write_bytes(files.python2_pickle({"label_names": [1] * 10}))
    with pytest.raises(DataError, match=r"batches\.meta: label_names must be a list of names"):
        load_images("cifar10", folder.parent)
