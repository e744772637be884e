import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import selfcal

ROOT = Path(__file__).parent.parent


def printed(code):
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("name", selfcal.__all__)
def test_every_public_name_is_one_thing_however_it_is_reached(name):
    """Loading a submodule binds its name in the package: it must not hide a public function."""
    first = getattr(selfcal, name)
    import_module(first.__module__ if hasattr(first, "__module__") else first.__name__)
    assert getattr(selfcal, name) is first
    assert inspect.ismodule(first) == (name not in selfcal._HOME)
    assert name in dir(selfcal)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = selfcal.nonsense


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import selfcal", ["torch", "matplotlib", "sklearn", "numpy"]),
        ("from selfcal import metrics, datasets, plots", ["torch", "matplotlib", "sklearn"]),
        ("import selfcal.commands.app", ["torch", "numpy"]),
        ("import selfcal.workflows.evaluation, selfcal.workflows.parts", ["torch", "matplotlib", "sklearn"]),
        ("from selfcal import SelectiveClassifier", ["torch", "matplotlib"]),
        ("from selfcal import SelfCalibratedClassifier", ["matplotlib", "typer"]),
    ],
)
def test_imports_stay_light(statement, not_loaded):
    check = f"{statement}; import sys; print([m for m in {not_loaded} if m in sys.modules])"
    assert printed(check) == "[]"


BLOCK_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""
WITHOUT_TORCH = f"""{BLOCK_TORCH}
from selfcal import SelectiveClassifier, calibrators, datasets, metrics, plots, reject
from selfcal.tabular import io
X, y = datasets.Blobs().sample(200, seed=0)
probs = calibrators.TemperatureScaling().fit(X, y % 2).predict_proba(X)
print(metrics.log_loss(y % 2, probs))
"""


def test_metrics_calibrators_datasets_tables_plots_and_the_reject_option_work_without_torch():
    assert 0 < float(printed(WITHOUT_TORCH)) < 1


@pytest.mark.slow
def test_what_other_pythons_test_without_torch_can_be_collected_without_it():
    script = (ROOT / ".ci" / "test-pythons").read_text()
    listed = script.partition("without_torch=(")[2].partition(")\n")[0]
    paths = subprocess.run(
        ["bash", "-c", f"echo {' '.join(listed.split())}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(paths) > 10
    collect = f"{BLOCK_TORCH}\nimport pytest\nsys.exit(pytest.main(['--collect-only', '-q', *{paths}]))"
    ran = subprocess.run(
        [sys.executable, "-c", collect], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
