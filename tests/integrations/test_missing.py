"""What is said of a package that is not installed."""

import builtins
import importlib
import sys

import pytest

from selfcal.errors import ConfigError


@pytest.mark.parametrize(
    ("module", "package", "advice"),
    [
        ("lightning", "lightning", "pip install lightning"),
        ("mlflow", "mlflow", r"pip install 'selfcal\[track\]'"),
    ],
)
def test_one_clear_error(module, package, advice, monkeypatch):
    given = builtins.__import__

    def without(name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0 and name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return given(name, globals, locals, fromlist, level)

    monkeypatch.delitem(sys.modules, f"selfcal.integrations.{module}", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=advice):
        importlib.import_module(f"selfcal.integrations.{module}")
