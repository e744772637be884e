import io
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from selfcal.errors import ConfigError, ModelFormatError
from selfcal.storage import skops_archive


def zipped(members, compression=zipfile.ZIP_STORED):
    """An archive of these pairs of name and content."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def declared(archive, size):
    """The archive, whose last member says in the list of members that it has another size."""
    at = archive.rindex(b"PK\x01\x02") + 24
    return archive[:at] + struct.pack("<I", size) + archive[at + 4 :]


def test_what_was_stored_comes_back():
    values = {"a": np.arange(3.0), "b": "text", "c": {"d": [np.ones(2, dtype=bool)]}}
    again = skops_archive.load(skops_archive.dump(values))
    np.testing.assert_array_equal(again["a"], values["a"], strict=True)
    np.testing.assert_array_equal(again["c"]["d"][0], values["c"]["d"][0], strict=True)
    assert again["b"] == "text"
    assert skops_archive.dump(values) == skops_archive.dump(again)


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (declared(zipped([("schema.json", b"{}")]), 2**26 + 1), r"schema\.json would take 67,108,865 bytes once"),
        (declared(zipped([("a", b"")]), 2**26 + 1), "may take 67,108,864"),
        (declared(zipped([("a", bytes(10**6))]), 101 * 10**6), "may take 100,0"),
        (declared(zipped([("a", bytes(10**7))]), 2**28), "it would take 268,435,456 bytes .*may take 268,435,455"),
        (zipped([("schema.json", b"{}")], zipfile.ZIP_LZMA), "a member is neither stored nor deflated"),
        (zipped([("schema.json", b"{}")], zipfile.ZIP_BZIP2), "a member is neither stored nor deflated"),
        (b"PK\x01\x02" * 2**18, "it has more than 131,072 members"),
    ],
    ids=["schema", "small", "ratio", "large", "lzma", "bzip2", "members"],
)  # fmt: skip
def test_sizes_are_checked_before_anything_is_unpacked(archive, message, monkeypatch):
    monkeypatch.setattr(skops_archive, "MOST_UNPACKED", 2**28 - 1)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a member was opened"))
    with pytest.raises(ModelFormatError, match=message):
        skops_archive.load(archive)


def test_a_member_is_unpacked_no_further_than_it_says():
    swelling = zipped([("schema.json", b" " * 2**24)], zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        with pytest.raises((ModelFormatError, zipfile.BadZipFile)):
            skops_archive.load(declared(swelling, 1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_member_that_comes_twice():
    with pytest.raises(ModelFormatError, match="a member comes twice"):
        skops_archive.load(zipped([("schema.json", b"{}")] * 2))


@pytest.mark.parametrize(("limit", "size"), [("MOST_SCHEMA", 600), ("MOST_UNPACKED", 2000)])
def test_what_could_not_be_read_is_not_written(limit, size, monkeypatch):
    monkeypatch.setattr(skops_archive, limit, size)
    skops_archive.dump({"a": "x"})
    with pytest.raises(ConfigError, match=f"cannot be stored: .* once unpacked, and may take {size:,}"):
        skops_archive.dump({"a": os.urandom(1000).hex()})
