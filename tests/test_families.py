"""Whatever belongs to a family is exported by its package, where the contract tests of the family find it."""

import inspect
import pkgutil
from importlib import import_module

import pytest

from selfcal import calibrators, hypergradients, losses, metrics, objectives, outer, predictive, uncertainty
from selfcal.calibrators._base import LogitCalibrator
from selfcal.training.interfaces import Hypergradient, Objective, OuterModel, Predictive
from selfcal.uncertainty import UncertaintyScore


def function_of(*first):
    """Whether something is a function that begins with these arguments."""
    return lambda value: inspect.isfunction(value) and [*inspect.signature(value).parameters][:2] == [*first]


def kind_of(base):
    """Whether something is a class of the family that can be instantiated."""
    return lambda value: (
        inspect.isclass(value)
        and issubclass(value, base)
        and value is not base
        and not inspect.isabstract(value)
    )


@pytest.mark.parametrize(
    ("family", "belongs"),
    [
        (losses, function_of("logits", "y")),
        (metrics, function_of("y_true", "probs")),
        (calibrators, kind_of(LogitCalibrator)),
        (uncertainty, kind_of(UncertaintyScore)),
        (outer, kind_of(OuterModel)),
        (objectives, kind_of(Objective)),
        (hypergradients, kind_of(Hypergradient)),
        (predictive, kind_of(Predictive)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_member_of_a_family_is_exported(family, belongs):
    found = set()
    for module in pkgutil.iter_modules(family.__path__, f"{family.__name__}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            loaded = import_module(module.name)
            found |= {
                name
                for name, value in vars(loaded).items()
                if not name.startswith("_") and belongs(value) and value.__module__ == module.name
            }
    assert found
    assert found <= set(family.__all__)
