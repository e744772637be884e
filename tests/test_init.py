import subprocess
import sys

import pytest

import selfcal


@pytest.mark.parametrize("name", selfcal.__all__)
def test_every_public_name_can_be_had(name):
    assert getattr(selfcal, name) is not None
    assert name in dir(selfcal)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = selfcal.nonsense


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import selfcal", ["torch", "matplotlib", "sklearn", "numpy"]),
        ("from selfcal import metrics, datasets, plots", ["torch", "matplotlib", "sklearn"]),
        ("import selfcal.cli", ["torch", "numpy"]),
        ("from selfcal import SelfCalibratedClassifier", ["matplotlib", "typer"]),
    ],
)
def test_imports_stay_light(statement, not_loaded):
    check = f"{statement}; import sys; print([m for m in {not_loaded} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
