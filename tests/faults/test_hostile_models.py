"""Model folders made by somebody who means ill, and folders damaged at random: only `ModelFormatError` comes out."""

import io
import json
import os
import pickle
import random
import struct
import warnings
import zipfile
from contextlib import suppress

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal import SelfCalibratedClassifier
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, ModelFormatError, SelfcalError
from selfcal.storage import describe, read_extra
from selfcal.storage.files import MAX_JSON_BYTES
from tests.stored_models import contents, ended, sealed, without_end

X, Y = Blobs(std=1.7).sample(120, seed=0)
FILES = ("model.json", "model.safetensors")


def contents_of(method, folder):
    model = SelfCalibratedClassifier(method, hidden=(4,), learning_rate=0.005, max_epochs=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return contents(model.fit(X, Y).save(folder))


class Models(list):
    def __repr__(self):
        return "good models"  # keeps their bytes out of the report of a failure


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The two files of a model with each kind of calibrator state."""
    folder = tmp_path_factory.mktemp("good")
    methods = (
        "standard",
        "temperature",
        "isotonic",
        "platt",
        "vector",
        "scaling_binning",
        "field_aware",
        "isoreg",
        "crossfit",
    )
    return Models(contents_of(method, folder / method) for method in methods)


def written(folder, files, *, seal=True):
    """These files as a model folder; sealed, model.json has the hashes of whatever it and the tensors are."""
    folder.mkdir(exist_ok=True)
    if seal:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            files = sealed(files)
    for name, data in files.items():
        (folder / name).unlink(missing_ok=True)  # to make a file short takes some file systems long
        (folder / name).write_bytes(data)
    return folder


def refused(path, match=None):
    with pytest.raises(ModelFormatError, match=match) as caught:
        SelfCalibratedClassifier.load(path)
    assert caught.value.exit_code == 5
    assert len(str(caught.value)) < 1500


class Canary:
    """When unpickled, it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def in_memory(write):
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


HOSTILE = {
    **{f"pickle {p}": lambda canary, p=p: pickle.dumps(canary, protocol=p) for p in range(6)},
    "joblib": lambda canary: in_memory(lambda f: joblib.dump(canary, f)),
    "joblib zlib": lambda canary: in_memory(lambda f: joblib.dump(canary, f, compress=("zlib", 3))),
    "joblib gzip": lambda canary: in_memory(lambda f: joblib.dump(canary, f, compress=("gzip", 3))),
    "torch": lambda canary: in_memory(lambda f: torch.save(canary, f)),
    "torch of old": lambda canary: in_memory(
        lambda f: torch.save(canary, f, _use_new_zipfile_serialization=False)
    ),
    "numpy": lambda canary: in_memory(lambda f: np.save(f, np.array([canary], dtype=object), allow_pickle=True)),
    "zip": lambda canary: in_memory(lambda f: zipped(f, {"../evil": b"x", "/etc/evil": b"x", "model.json": b"{}"})),
}  # fmt: skip


def zipped(file, members):
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.fault("S1", "S3")
class TestFilesThatCouldRunCode:
    """S1, S3: refused by their first bytes, whatever they are called; nothing is unpacked and nothing runs."""

    @pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
    @pytest.mark.parametrize("name", ["model.pkl", "model.pt", "model", "model.json", "model.safetensors"])
    def test_given_as_the_model(self, tmp_path, make, name):
        (tmp_path / name).write_bytes(make(Canary(tmp_path / "canary")))
        refused(tmp_path / name, "must be a folder with model.json and model.safetensors")
        assert os.listdir(tmp_path) == [name]

    @pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
    @pytest.mark.parametrize("name", FILES)
    def test_in_place_of_one_of_its_files(self, tmp_path, good, make, name):
        payload = make(Canary(tmp_path / "canary"))
        folder = written(tmp_path / "model", good[0] | {name: payload})
        refused(folder, f"{name} must be .*It is not read")
        assert not (tmp_path / "canary").exists()

    def test_the_canary_would_sing(self, tmp_path):
        pickle.loads(HOSTILE["pickle 0"](Canary(tmp_path / "canary"))).close()
        assert (tmp_path / "canary").exists()

    @pytest.mark.parametrize(("name", "kind"), [("pickle 4", "a pickle"), ("torch", "a zip archive")])
    def test_it_is_told_what_the_file_is(self, tmp_path, name, kind):
        (tmp_path / "model").write_bytes(HOSTILE[name](Canary(tmp_path / "canary")))
        refused(tmp_path / "model", f"this is {kind}, such as .*files that can run code are refused")


@pytest.mark.fault("S3")
class TestFilesThatAreNone:
    """S3: what is no ordinary file is not opened."""

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device", "loop", "empty"])
    def test_instead_of_a_file(self, tmp_path, good, name, kind):
        file = written(tmp_path / "model", good[0]) / name
        file.unlink()
        if kind == "folder":
            file.mkdir()
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "device":
            file.symlink_to("/dev/zero")
        elif kind == "loop":
            file.symlink_to(file)
        elif kind == "empty":
            file.touch()
        refused(file.parent, name)

    def test_no_folder(self, tmp_path):
        refused(tmp_path / "absent", "but it does not exist")
        refused("nul\0byte", "could not be read")
        os.mkfifo(tmp_path / "pipe")
        refused(tmp_path / "pipe", "must be a folder")


def header(value, data=bytes(16), length=None):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape, offsets, dtype="F64"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


ONE = b'"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}'
BAD_TENSORS = {
    "length beyond the file": header({"a": tensor([2], [0, 16])}, length=1000),
    "length of 2^63": header({}, length=1 << 63),
    "length of zero": header({}, length=0),
    "header of 100 MB": header(b"{" + b" " * 100_000_000 + b"}", b""),
    "header over our limit": header(b"{" + b" " * MAX_JSON_BYTES + b"}", b""),
    "name twice": header(b"{" + ONE + b"," + ONE + b"}"),
    "overlap": header({"a": tensor([2], [0, 16]), "b": tensor([1], [8, 16])}),
    "out of range": header({"a": tensor([4], [0, 32])}),
    "hole": header({"a": tensor([1], [8, 16])}),
    "bytes left over": header({"a": tensor([1], [0, 8])}),
    "ends before it starts": header({"a": tensor([1], [8, 0])}),
    "shape below zero": header({"a": tensor([-2], [0, 16])}),
    "shape overflows": header({"a": tensor([2**32, 2**32], [0, 16])}),
    "shape of nothing, huge": header({"a": tensor([0, 2**63], [0, 0])}, b""),
    "unknown type": header({"a": tensor([2], [0, 16], "F63")}),
    "type of no use": header({"a": tensor([8], [0, 16], "BF16")}),
    "complex": header({"a": tensor([2], [0, 16], "C64")}),
    "not UTF-8": header(b'{"\xff":' + ONE[4:] + b"}"),
    "nested": header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "NaN": header(b'{"a":NaN}'),
    "a list": header(b"[]"),
    "cut": header({"a": tensor([2], [0, 16])})[:20],
    "8 bytes": bytes(8),
    "no known tensor": header({"a": tensor([2], [0, 16])}),
}


@pytest.mark.fault("S2")
@pytest.mark.parametrize("data", BAD_TENSORS.values(), ids=BAD_TENSORS.keys())
def test_malformed_tensors(tmp_path, good, data):
    """S2."""
    refused(written(tmp_path / "model", good[0] | {"model.safetensors": data}), "^(?!.*SHA-256)")


BAD_JSON = {
    "name twice": lambda text: text.replace(b'"kind"', b'"kind": "x", "kind"', 1),
    "NaN": lambda text: text.replace(b"0.005", b"NaN"),
    "Infinity": lambda text: text.replace(b"0.005", b"-Infinity"),
    "too large a number": lambda text: text.replace(b"0.005", b"1e999"),
    "5000 digits": lambda text: text.replace(b'"steps": ', b'"steps": ' + b"9" * 5000),
    "nested": lambda text: text.replace(b"0.005", b"[" * 100_000 + b"]" * 100_000),
    "over the limit": lambda text: text + b" " * MAX_JSON_BYTES,
    "not UTF-8": lambda text: text.replace(b"mlp", b"\xff"),
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "cut": lambda text: text[:-20],
    "a list": lambda text: b"[" + text + b"]",
    "two": lambda text: text + text,
    "of something else": lambda text: b'{"format": "cake"',
    "network of many layers": lambda text: text.replace(b"    4\n", b"    4" + b", 4" * 1_000_000 + b"\n"),
    "other network": lambda text: text.replace(b'"mlp"', b'"_remembered"'),
    "widths of text": lambda text: text.replace(b'"hidden": [\n   4\n', b'"hidden": [\n   "4"\n'),
    "unknown setting": lambda text: text.replace(b'"patience"', b'"__class__"'),
    "setting out of range": lambda text: text.replace(b'"validation_fraction": 0.3', b'"validation_fraction": 3'),
    "classes of text": lambda text: text.replace(b'"dtype": "int64"', b'"dtype": "U999999999"'),
    "a name of a class that is long": lambda text: text.replace(b'"dtype": "int64"', b'"dtype": "str"').replace(
        b"   0,\n   1,\n   2,\n   3,\n   4\n", b'"a", "b", "c", "d", "' + b"x" * (MAX_JSON_BYTES - 3000) + b'"\n'
    ),
    "a class twice": lambda text: text.replace(b'"values": [\n   0', b'"values": [\n   1'),
    "more classes": lambda text: text.replace(b'"values": [\n   0', b'"values": [\n   9,\n   0'),
    "many features": lambda text: text.replace(b'"count": 2', b'"count": 2000000000'),
    "file of 2^63 bytes": lambda text: text.replace(b'"bytes": ', b'"bytes": 9223372036854775808'),
    "version below zero": lambda text: text.replace(b'"format_version": 2', b'"format_version": -1'),
    "version of text": lambda text: text.replace(b'"format_version": 2', b'"format_version": "1"'),
    "version is true": lambda text: text.replace(b'"format_version": 2', b'"format_version": true'),
}  # fmt: skip


@pytest.mark.fault("S2")
@pytest.mark.parametrize("change", BAD_JSON.values(), ids=BAD_JSON.keys())
def test_malformed_description(tmp_path, good, change):
    text = without_end(good[0]["model.json"])
    assert change(text) != text
    files = good[0] | {"model.json": ended(change(text))}
    refused(written(tmp_path / "model", files, seal=False), "^(?!.*must end with the SHA-256)")


@pytest.mark.fault("S2")
def test_a_network_too_large_for_its_weights_is_never_made(tmp_path, good):
    text = good[0]["model.json"].replace(b'"hidden": [\n    4\n', b'"hidden": [\n    4000000000\n')
    refused(
        written(tmp_path / "model", good[0] | {"model.json": text}),
        "The stored weights do not fit the network",
    )


def _more_members(description):
    description["network"]["members"] *= 2_000


def _nested(depth):
    spec = {"name": "mlp", "arguments": {}}
    for _ in range(depth):
        spec = {"members": [spec]}
    return [spec]


def _temperature(description):
    description["selection"][0]["temperature"] = "warm"


BAD_ENSEMBLES = {
    "no list": (lambda d: d["network"].update(members="many"), r"must have 'members' \(list\); got a str"),
    "nobody": (lambda d: d["network"].update(members=[]), "An ensemble needs at least one network"),
    "ten thousand": (_more_members, r"More than \d+ networks do not fit the stored weights"),
    "one too few": (lambda d: d["network"]["members"].pop(), "do not fit the network"),
    "one twice": (lambda d: d["network"]["members"].append(d["network"]["members"][0]), "do not fit the network"),
    "no description": (lambda d: d["network"]["members"].insert(0, 7), "described by its name and arguments"),
    "ensemble of ensembles": (
        lambda d: d["network"]["members"].insert(0, {"members": d["network"]["members"][:]}),
        "do not fit the network"),
    "many wrappers": (lambda d: d["network"].update(members=_nested(50)), "At most 8 wrappers"),
    "a wrapper of nothing": (lambda d: d.update(network={"denoised": None}), "described by its name and arguments"),
    "an unknown wrapper": (lambda d: d.update(network={"nn.Module": {}}), "must have 'name'"),
    "a hole": (lambda d: d["network"]["members"].append({"own": "Linear"}), r"Pass the function that makes it"),
    "unknown name": (lambda d: d["network"]["members"][0].update(name="os"), "A network must be one of"),
    "unknown encoding": (
        lambda d: d["network"]["members"][0]["arguments"].update(encoding="x"), "encoding must be one of"),
    "other sizes": (
        lambda d: d["network"]["members"][0]["arguments"].update(hidden=[10**12]), "do not fit the network"),
    "columns that are not there": (
        lambda d: [m["arguments"].update(columns=[0, 10**9]) for m in d["network"]["members"]], "out of bounds"),
    "what was tried is no list": (lambda d: d.update(selection={}), r"must have 'selection' \(list\)"),
    "what was tried is no record": (lambda d: d.update(selection=[3]), "described by names and numbers"),
    "a temperature of text": (_temperature, "must have 'temperature' "),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD_ENSEMBLES.values(), ids=BAD_ENSEMBLES.keys())
def test_malformed_committee(tmp_path, good, change, message):
    description = json.loads(good[-1]["model.json"])
    change(description)
    text = json.dumps(description).encode()
    refused(written(tmp_path / "model", good[-1] | {"model.json": text}), message)


@pytest.mark.parametrize("depth", [100, 200, 300, 400, 1000, 100_000])
def test_wrappers_without_end(tmp_path, good, depth):
    text = without_end(good[0]["model.json"])
    start, end = b'{"members": [' * depth, b"]}" * depth
    hostile = text.replace(b'"network": {', b'"network": ' + start + end + b', "n": {')
    assert hostile != text
    refused(written(tmp_path / "model", good[0] | {"model.json": ended(hostile)}, seal=False))


@pytest.mark.parametrize("name", ["Calibrator", "LogitCalibrator", "__builtins__", "os", ""])
def test_only_our_calibrators_are_made(tmp_path, good, name):
    text = good[1]["model.json"].replace(b'"TemperatureScaling"', json.dumps(name).encode())
    refused(written(tmp_path / "model", good[1] | {"model.json": text}), "A calibrator must be one of")


@pytest.mark.fault("S2")
def test_every_flipped_byte_of_the_tensors_is_seen(tmp_path, good):
    folder = written(tmp_path / "model", good[3])
    data = good[3]["model.safetensors"]
    for place in range(0, len(data), 7):
        (folder / "model.safetensors").write_bytes(
            data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        )
        refused(folder)
    (folder / "model.safetensors").write_bytes(data[:-1])
    refused(folder, "is damaged: its SHA-256 is not the one in model.json")
    (folder / "model.safetensors").write_bytes(data + b"\0")
    refused(folder, "at most")


def test_what_is_read_without_loading_is_checked_too(tmp_path, good):
    folder = written(tmp_path / "model", {"model.json": HOSTILE["pickle 2"](Canary(tmp_path / "canary"))})
    reading = (describe, lambda path: read_extra(path, "report.html"))
    for read in reading:
        with pytest.raises(ModelFormatError, match="this is a pickle"):
            read(folder)
    folder = written(tmp_path / "model", good[0] | {"report.html": b"<html>"})
    (folder / "report.html").unlink()
    for read in reading:
        with pytest.raises(ModelFormatError, match=r"report\.html must be a file; it does not exist"):
            read(folder)
    with pytest.raises(ConfigError, match=r"name must be one of .*got '\.\./model\.json'"):
        read_extra(folder, "../model.json")


WORDS = [None, True, False, 0, 1, -1, 2**63, 10**400, 0.5, -0.0, 1e308, "", "mlp", "str", "a" * 300, "\ud800",
         [], [1], [[]], {}, {"a": 1}]  # fmt: skip


def flip(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        data[place] = rng.choice([rng.randrange(256), data[place] ^ 1 << rng.randrange(8), 0x30, 0x22, 0x2C])
    return bytes(data)


def splice(data, rng):
    i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    k = rng.randrange(len(data))
    return rng.choice([data[:i], data[:i] + data[j:], data[:i] + data[k : k + 30] + data[i:], data[i:]])


def replace_value(data, rng):
    """Put some other value in place of one in a JSON object, or take it away, or rename it."""
    tree = json.loads(data)
    part = tree
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        if not keys:
            break
        key = rng.choice(keys)
        if isinstance(part[key], (dict, list)) and part[key] and rng.random() < 0.8:
            part = part[key]
            continue
        what = rng.random()
        if what < 0.8:
            part[key] = rng.choice(WORDS)
        elif what < 0.9:
            del part[key]
        elif isinstance(part, dict):
            part[rng.choice(list(tree))] = part.pop(key)
        break
    return json.dumps(tree).encode()


def damage(files, rng):
    """One of many ways to damage a model; what is behind the hash is reached too, since the seal is made anew."""
    name = rng.choice(FILES)
    ways = [flip, splice]
    if name == "model.json":
        ways += [replace_value] * 4
    data = rng.choice(ways)(files[name], rng)
    if name == "model.safetensors" and rng.random() < 0.5:  # damage the values alone
        start = 8 + int.from_bytes(files[name][:8], "little")
        data = files[name][:start] + flip(files[name][start:], rng)
    return files | {name: data}, rng.random() < 0.9


def survives(folder, good, seed):
    rng = random.Random(seed)
    files, seal = damage(rng.choice(good), rng)
    written(folder, files, seal=seal)
    with suppress(ModelFormatError):
        model = SelfCalibratedClassifier.load(folder)
        with suppress(SelfcalError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.predict_proba(X[:5])  # damage that was sealed anew may be in the numbers alone


@pytest.mark.fault("S2")
@settings(max_examples=500, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**64))
def test_five_hundred_damaged_models(good, tmp_path_factory, seed):
    survives(tmp_path_factory.getbasetemp() / "damaged", good, seed)


@pytest.mark.fault("S2")
@pytest.mark.slow_faults
@settings(max_examples=20_000, deadline=None, database=None)
@given(seed=st.integers(0, 2**64))
def test_twenty_thousand_damaged_models(good, tmp_path_factory, seed):
    survives(tmp_path_factory.getbasetemp() / "damaged", good, seed)


@pytest.mark.fault("S2")
@settings(max_examples=500, deadline=None, derandomize=True)
@given(data=st.binary(max_size=200), name=st.sampled_from(FILES))
def test_random_bytes(good, tmp_path_factory, data, name):
    folder = written(tmp_path_factory.getbasetemp() / "random", good[0] | {name: data})
    with pytest.raises(ModelFormatError):
        SelfCalibratedClassifier.load(folder)
