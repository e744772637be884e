"""Names of a package that are imported when they are first used."""

import pytest

from selfcal import conformal, storage
from selfcal._support.lazy_names import lazy_names


@pytest.mark.parametrize("package", [conformal, storage])
def test_every_public_name_of_a_package_is_there(package):
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_a_name_is_that_of_its_module():
    from selfcal.conformal.novelty import NoveltyDetector

    assert (
        lazy_names("selfcal.conformal", {"NoveltyDetector": "novelty"})("NoveltyDetector") is NoveltyDetector
    )


def test_unknown_names_are_unknown_attributes():
    with pytest.raises(AttributeError, match=r"'selfcal.conformal' has no attribute 'Conformal'"):
        _ = conformal.Conformal
