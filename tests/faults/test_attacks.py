"""Files and names made by somebody who means ill, given to the commands."""

import ast
import functools
import json
import os
import pickle
import re
import shutil
import struct
import zipfile
from pathlib import Path

import joblib
import numpy as np
import polars as pl
import pytest
import skops.io
import torch
from sklearn.preprocessing import FunctionTransformer

import selfcal
from selfcal.commands import app
from selfcal.tabular.io import read_table
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import QUICK, people, run, shelf, succeed
from tests.faults.test_hostile_models import Canary, in_memory
from tests.reporting.judged import HOSTILE
from tests.reporting.test_page import Page
from tests.storage.test_skops_archive import declared, zipped
from tests.stored_models import contents
from tests.stored_models import sealed as with_right_hashes

__all__ = ["shelf"]  # the fixture

SKOPS = "preprocessor.skops"


PICKLES = {
    "pickle": pickle.dumps,
    "joblib": lambda canary: in_memory(lambda file: joblib.dump(canary, file)),
    "torch": lambda canary: in_memory(lambda file: torch.save(canary, file)),
}


@pytest.mark.fault("S1")
@pytest.mark.parametrize("make", PICKLES.values(), ids=PICKLES)
@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_pickle_as_the_model_or_the_data(make, name, shelf, tmp_path):
    (tmp_path / name).write_bytes(make(Canary(tmp_path / "canary")))
    for command in (
        ["predict", tmp_path / name, shelf / "people.csv", "--out", "-"],
        ["inspect", tmp_path / name],
    ):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (5, "")
        assert "must be a folder with model.json and model.safetensors" in result.stderr
    result = run("predict", shelf / "people-model", tmp_path / name, "--out", "-")
    assert (result.exit_code, result.stdout) == (3, "")
    assert os.listdir(tmp_path) == [name]


@pytest.fixture
def sealed(shelf, tmp_path):
    """A copy of a model in which one file is another, with a hash to match."""

    def make(name, data):
        folder = tmp_path / "model"
        shutil.copytree(shelf / "people-model", folder)
        for part, content in with_right_hashes(contents(folder) | {name: data}).items():
            (folder / part).write_bytes(content)
        return folder

    return make


def refused(folder, shelf, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    result = run("predict", folder, shelf / "people.csv", "--out", tmp_path / "p.csv")
    assert (result.exit_code, result.stdout) == (5, ""), result.output
    assert "Traceback" not in result.stderr
    assert sorted(tmp_path.rglob("*")) == before
    return result.stderr


@pytest.mark.fault("S1", "S2")
@pytest.mark.parametrize(
    "data",
    [pickle.dumps([]), struct.pack("<Q", 2**40) + b"{}", struct.pack("<Q", 2) + b"{}" + bytes(8)],
    ids=["pickle", "long header", "bytes that belong to nothing"],
)
def test_tensors_that_are_none(data, sealed, shelf, tmp_path):
    assert "model.safetensors" in refused(sealed("model.safetensors", data), shelf, tmp_path)


ARCHIVES = {
    "out of its folder": zipped([("../evil", b"x"), ("/tmp/evil", b"x"), ("schema.json", b"{}")]),
    "no schema": zipped([("a", b"x")]),
    "device": zipped([("/dev/stdout", b"x")]),
    "empty": zipped([]),
    "cut off": zipped([("schema.json", b"{}")])[:-5],
    "deep": zipped([("schema.json", b"[" * 100_000)]),
}


@pytest.mark.fault("S3")
@pytest.mark.parametrize("data", ARCHIVES.values(), ids=ARCHIVES)
def test_archives_that_mean_ill(data, sealed, shelf, tmp_path):
    assert SKOPS in refused(sealed(SKOPS, data), shelf, tmp_path)


@pytest.mark.fault("S3", "S12")
def test_an_archive_that_swells(sealed, shelf, tmp_path):
    data = declared(zipped([("a", b"")]), 2**30)
    assert "it would take 1,073,741,824 bytes once unpacked" in refused(sealed(SKOPS, data), shelf, tmp_path)


@pytest.mark.fault("S12")
@pytest.mark.parametrize("place", ["tensor", "file", "version", "argument", "type", "archive"])
def test_names_of_megabytes_are_cut(place, shelf, tmp_path):
    name, folder = "n" * 5_000_000, tmp_path / "model"
    files = contents(shelf / "people-model")
    description = json.loads(files["model.json"])
    if place == "tensor":  # the library names it in its error
        header = json.dumps({name: {"dtype": "F64", "shape": [1], "data_offsets": [8, 16]}}).encode()
        files["model.safetensors"] = struct.pack("<Q", len(header)) + header + bytes(16)
    elif place == "file":
        description["files"][name] = {"bytes": 0, "sha256": ""}
    elif place == "version":
        description |= {"format_version": 10**4000, "selfcal_version": name}
    elif place == "argument":
        description["network"]["arguments"][name] = 1
    elif place == "type":
        description["classes"]["dtype"] = name
    else:
        files[SKOPS] = skops.io.dumps({"preprocessor": type(name, (), {"__module__": "__main__"})()})
    files["model.json"] = json.dumps(description).encode()
    folder.mkdir()
    for part, content in with_right_hashes(files).items():
        (folder / part).write_bytes(content)
    assert len(refused(folder, shelf, tmp_path)) < 1000


@pytest.mark.fault("S12")
def test_names_of_megabytes_are_cut_where_a_model_is_shown(tmp_path):
    name = "n" * 1_000_000
    table = people().rename({"size": name}).with_columns(kind=pl.col("kind").replace({"k1": name}))
    table = table.rename({"kind": f"target{name}"})
    TableModel("standard", max_epochs=1).fit(table, f"target{name}").save(tmp_path / "m")
    shown = succeed("inspect", tmp_path / "m").stdout
    assert len(shown) < 10_000
    assert shown.count("nnn...") >= 3


@pytest.mark.fault("S3")
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_member_that_comes_twice(sealed, shelf, tmp_path):
    with zipfile.ZipFile(shelf / "people-model" / SKOPS) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    refused(sealed(SKOPS, zipped([*members, ("schema.json", b"{}")])), shelf, tmp_path)


@pytest.mark.fault("S4")
@pytest.mark.parametrize("kind", ["function", "partial", "operator"])
def test_preprocessing_that_could_run_code(kind, sealed, shelf, tmp_path):
    canary = str(tmp_path / "canary")
    attack = {
        "function": FunctionTransformer(os.system, kw_args={"command": f"touch {canary}"}),
        "partial": functools.partial(os.system, f"touch {canary}"),
        "operator": Path(canary).touch,
    }[kind]
    data = skops.io.dumps(
        {"preprocessor": attack, "table": "{}", "confidence": np.ones(1), "wrong": np.ones(1)}
    )
    assert "holds nothing that can be used: Untrusted types" in refused(sealed(SKOPS, data), shelf, tmp_path)


def hostile_table(n=120):
    """Hostile names of columns, of the target and of classes, as far as a CSV file can hold them."""
    names = [name for key, name in HOSTILE.items() if key not in ("half a character", "empty", "control")]
    names += ["\x1b[31mred\x1b]0;owned\x07", "[red]rich[/red]"]
    rng = np.random.default_rng(0)
    code = np.arange(n) % len(names)
    columns = {f"{name} {i}": code + rng.normal(size=n) for i, name in enumerate(names)}
    return pl.DataFrame({**columns, "<b onclick=alert(1)>": [names[c] for c in code]})


@pytest.mark.fault("S5", "S7")
def test_names_that_mean_ill_are_text_on_the_page_and_on_the_terminal(tmp_path):
    table = hostile_table()
    data = tmp_path / "<img src=x onerror=alert(1)>{{7*7}}.csv"
    table.write_csv(data)
    target = table.columns[-1]
    result = succeed("fit", data, "--target", target, "--out", tmp_path / "m", *QUICK)
    shown = succeed("inspect", tmp_path / "m", "--all")
    succeed("predict", tmp_path / "m", data, "--out", tmp_path / "<script>x.csv")
    told = succeed(
        "report",
        tmp_path / "<script>x.csv",
        "--target",
        target,
        "--out",
        tmp_path / "r.html",
        "--title",
        "{{7*7}}<b>",
    )
    for page in (Page(tmp_path / "m" / "report.html"), Page(tmp_path / "r.html")):
        assert len(page.attributes("script")) == 2
        assert not page.attributes("img")
        assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
        policy = next(a["content"] for a in page.attributes("meta") if a.get("http-equiv"))
        assert policy.startswith("default-src 'none';")
    assert "{{7*7}}<b>" in page.text["h1"]
    for output in (result.output, shown.output, told.output):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", output)
    assert "[red]rich[/red]" in shown.output  # as it stands: nobody takes it for markup
    assert "\\x1b[31mred" in shown.output


@pytest.mark.fault("S7")
def test_names_that_mean_ill_in_an_error(shelf, tmp_path):
    result = run("fit", shelf / "people.csv", "--target", "\x1b]0;owned\x07[red]", "--out", tmp_path / "m")
    assert result.exit_code == 3
    assert not re.search(r"[\x1b\x07]", result.output)
    assert "[red]" in result.stderr


@pytest.mark.fault("S6")
@pytest.mark.parametrize("safe", [False, True], ids=["as they are", "excel-safe"])
def test_classes_that_are_formulas(safe, tmp_path):
    names = ['=HYPERLINK("http://x.example","y")', "+1", "-1+2", "@SUM(1)", "\tx", "\rx", "plain"]
    rng = np.random.default_rng(0)
    code = np.arange(140) % len(names)
    table = pl.DataFrame({"a": code + rng.normal(size=140), "y": [names[c] for c in code]})
    table.write_csv(tmp_path / "d.csv")
    succeed("fit", tmp_path / "d.csv", "--target", "y", "--out", tmp_path / "m", *QUICK)
    words = ["predict", tmp_path / "m", tmp_path / "d.csv", "--out", tmp_path / "p.csv"]
    succeed(*words, *(["--excel-safe"] if safe else []))
    read = read_table(tmp_path / "p.csv")
    prefix = "'" if safe else ""
    expected = [name if name == "plain" else prefix + name for name in table["y"]]
    assert read["y"].to_list() == expected
    assert set(read["predicted"]) <= set(expected)
    assert read["confidence"].cast(pl.Float64).is_between(0, 1).all()


@pytest.mark.fault("S8")
def test_there_is_no_configuration_file(shelf, tmp_path, monkeypatch):
    """The row asks for a safe YAML loader: there is none because nothing but data, models and options is read."""
    parsers = {"yaml", "ruamel", "tomllib", "tomli", "configparser", "pydantic", "omegaconf", "dotenv"}
    for path in Path(selfcal.__file__).parent.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = {alias.name.split(".")[0] for n in nodes if isinstance(n, ast.Import) for alias in n.names}
        imported |= {(n.module or "").split(".")[0] for n in nodes if isinstance(n, ast.ImportFrom)}
        assert not imported & parsers, path
    for command in app.app.registered_commands:
        assert "config" not in run(command.callback.__name__, "--help").output.lower()
    attack = f"!!python/object/apply:os.system ['touch {tmp_path}/canary']\nmethod: focal\nmax_epochs: 1\n"
    monkeypatch.chdir(tmp_path)
    for name in ("selfcal.yaml", "selfcal.yml", ".selfcal", ".selfcalrc", "selfcal.toml", "config.yaml"):
        Path(name).write_text(attack)
    succeed("fit", shelf / "people.csv", "--target", "kind", "--out", "m", *QUICK)
    for path in (shelf / "people-model").iterdir():
        assert Path("m", path.name).read_bytes() == path.read_bytes()
    assert not Path("canary").exists()


@pytest.mark.fault("S8")
def test_a_configuration_given_as_data_or_model_is_refused(shelf, tmp_path):
    bomb = "a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a, *a, *a]\n" for i in range(9))
    (tmp_path / "c.yaml").write_text(bomb)
    assert run("fit", tmp_path / "c.yaml", "--target", "a", "--out", tmp_path / "m").exit_code == 3
    assert run("inspect", tmp_path / "c.yaml").exit_code == 5
    assert (
        run("fit", shelf / "people.csv", "--target", "kind", "--config", tmp_path / "c.yaml").exit_code == 2
    )
