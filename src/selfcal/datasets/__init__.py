"""Generated classification problems with a known posterior, stratified splits, and image sets from files."""

from __future__ import annotations

from selfcal._support.splits import stratified_split
from selfcal.datasets._base import Feature, GenerativeDataset
from selfcal.datasets._split import Part, ThreeWaySplit, three_way_split
from selfcal.datasets.blobs import Blobs
from selfcal.datasets.blood_alcohol import BloodAlcohol
from selfcal.datasets.images import ImageSet, load_images
from selfcal.datasets.spirals import Spirals

__all__ = [
    "Blobs",
    "BloodAlcohol",
    "Feature",
    "GenerativeDataset",
    "ImageSet",
    "Part",
    "Spirals",
    "ThreeWaySplit",
    "load_images",
    "paper_datasets",
    "stratified_split",
    "three_way_split",
]


def paper_datasets() -> dict[str, GenerativeDataset]:
    """Return the five problems of the bilevel self-calibration paper's Table 1, by name and in its order.

    Returns:
        A new dictionary from `name` to data set.

    Example:
        >>> list(paper_datasets())
        ['blobs-1.3', 'blobs-1.7', 'spiral-2.5', 'spiral-3.5', 'bac']
    """
    members = [Blobs(1.3), Blobs(1.7), Spirals(2.5), Spirals(3.5), BloodAlcohol()]
    return {member.name: member for member in members}
