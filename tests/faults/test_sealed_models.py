"""A model folder is as it was written, or it is refused."""

import json
import os
import random
import shutil
import warnings

import numpy as np
import pytest

from selfcal.errors import ModelFormatError, UnsealedModelWarning
from selfcal.storage import describe, read_extra
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import people, run, shelf
from tests.stored_models import contents, sealed, without_end

__all__ = ["shelf"]  # the fixture

FILES = {
    "model.json",
    "model.safetensors",
    "preprocessor.skops",
    "report.html",
    "report.json",
    "model_card.md",
}
METHODS = ("auto", "temperature", "bo4sc")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            TableModel(method, hidden=(4,), max_epochs=2).fit(people(80), "kind").save(folder / method)
            for method in METHODS
        ]


@pytest.fixture
def folder(folders, tmp_path):
    return shutil.copytree(folders[1], tmp_path / "model")


def refused(folder, match):
    for read in (TableModel.load, describe, lambda path: read_extra(path, "report.html")):
        with pytest.raises(ModelFormatError, match=match):
            read(folder)


def mutate(folders, count, seed):
    """Change one byte at a time, and change it back."""
    rng = random.Random(seed)
    for folder in folders:
        assert {path.name for path in folder.iterdir()} == FILES
    for _ in range(count):
        path = rng.choice(folders) / rng.choice(sorted(FILES))
        place, other = rng.randrange(path.stat().st_size), rng.randrange(1, 256)
        with open(path, "r+b", buffering=0) as file:
            file.seek(place)
            before = file.read(1)
            file.seek(place)
            file.write(bytes([before[0] ^ other]))
            with pytest.raises(ModelFormatError):
                TableModel.load(path.parent)
            file.seek(place)
            file.write(before)


@pytest.mark.fault("S11")
class TestChangedBytes:
    def test_three_hundred_at_random(self, folders):
        mutate(folders, 300, seed=0)

    @pytest.mark.slow_faults
    def test_twenty_thousand_at_random(self, folders):
        mutate(folders, 20_000, seed=1)

    def test_every_byte_of_the_version_and_of_the_hash(self, folder):
        """Where a change could make another format of it, or a folder without a hash."""
        file = folder / "model.json"
        data = file.read_bytes()
        version = data.index(b'"format_version"')
        for place in (*range(version, data.index(b"\n", version)), *range(len(without_end(data)), len(data))):
            for other in {*b'01" \n}', data[place] ^ 1} - {data[place]}:
                file.write_bytes(data[:place] + bytes([other]) + data[place + 1 :])
                with pytest.raises(ModelFormatError):
                    describe(folder)

    @pytest.mark.parametrize(
        "change",
        [
            lambda data: data + b"\n",
            lambda data: b" " + data,
            lambda data: data.replace(b"\n", b"\r\n"),
            lambda data: data.replace(b'"k0"', b'"k9"'),
            lambda data: json.dumps(json.loads(data), indent=1, sort_keys=True).encode(),
            lambda data: without_end(data) + b"\n}",
        ],
        ids=["line", "blank", "line ends", "class", "order", "no hash"],
    )
    def test_an_edited_description(self, folder, change):
        file = folder / "model.json"
        file.write_bytes(change(file.read_bytes()))
        refused(folder, r"model\.json must end with the SHA-256 of all bytes before it; it does not")

    @pytest.mark.parametrize("name", sorted(FILES))
    def test_a_missing_file(self, folder, name):
        (folder / name).unlink()
        refused(folder, f"{name} must be a file; it does not exist")

    @pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
    def test_a_file_of_another_model(self, folder, folders, name):
        shutil.copy(folders[0] / name, folder / name)
        refused(folder, name)

    def test_a_list_of_other_files(self, folder):
        description = json.loads((folder / "model.json").read_bytes())
        description["files"]["../evil"] = {"bytes": 0, "sha256": ""}
        files = sealed(contents(folder) | {"model.json": json.dumps(description).encode()})
        (folder / "model.json").write_bytes(files["model.json"])
        refused(folder, r"must list no file but those of a model; got '\.\./evil'")


@pytest.mark.fault("S11")
class TestFoldersOfFormat1:
    """Made by hand from a folder of format 2: all that tells them apart is the version and the hash at the end."""

    @pytest.fixture
    def old(self, folder):
        file = folder / "model.json"
        text = without_end(file.read_bytes()) + b"\n}"
        file.write_bytes(text.replace(b'"format_version": 2', b'"format_version": 1'))
        return folder

    def test_they_are_read_with_one_warning(self, old, folders):
        with pytest.warns(UnsealedModelWarning, match="is not sealed") as warned:
            model = TableModel.load(old)
        assert len(warned) == 1
        expected = TableModel.load(folders[1]).predict(people(20))
        np.testing.assert_array_equal(model.predict(people(20)).probs, expected.probs)
        assert describe(model.save(old))["format_version"] == 2

    def test_a_command_says_so_once(self, old):
        result = run("inspect", old)
        assert result.exit_code == 0
        assert result.stderr.count("is not sealed") == 1

    @pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
    def test_their_other_files_are_verified(self, old, name):
        data = (old / name).read_bytes()
        (old / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(ModelFormatError, match=f"{name} is damaged"):
            TableModel.load(old)


@pytest.mark.fault("S13")
class TestSymbolicLinks:
    @pytest.mark.parametrize("name", sorted(FILES))
    def test_in_place_of_a_file(self, folder, name, tmp_path, shelf):
        os.replace(folder / name, tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
        refused(folder, f"{name} must be a file; it is a symbolic link")
        result = run("predict", folder, shelf / "people.csv", "--out", "-")
        assert (result.exit_code, result.stdout) == (5, "")

    def test_to_the_folder(self, folder, tmp_path):
        (tmp_path / "link").symlink_to(folder, target_is_directory=True)
        assert TableModel.load(tmp_path / "link").classes == ("k0", "k1", "k2")
