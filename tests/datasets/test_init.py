from __future__ import annotations

from selfcal import datasets
from selfcal.datasets import GenerativeDataset, paper_datasets


def test_paper_datasets_are_keyed_by_name():
    found = paper_datasets()
    assert list(found) == ["blobs-1.3", "blobs-1.7", "spiral-2.5", "spiral-3.5", "bac"]
    assert all(name == member.name for name, member in found.items())
    assert all(isinstance(member, GenerativeDataset) for member in found.values())


def test_public_names_exist_and_are_sorted():
    assert datasets.__all__ == sorted(datasets.__all__)
    assert all(hasattr(datasets, name) for name in datasets.__all__)
