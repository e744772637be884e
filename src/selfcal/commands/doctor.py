"""`selfcal doctor`: a check of the installation."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from selfcal.commands._shared import AsJson, print_json, say

PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "polars",
    "safetensors",
    "skops",
    "typer",
    "rich",
    "jinja2",
    "matplotlib",
)
OPTIONAL = ("onnx", "onnxruntime", "openpyxl", "optuna")


def doctor(*, as_json: AsJson = False) -> None:
    """Show versions, threads and other facts for a bug report; the exit code is 1 if a package is missing.

    Try:

      selfcal doctor --json
    """
    facts = {**_machine(), **{name: _installed(name) or "MISSING" for name in PACKAGES}}
    facts |= {name: _installed(name) or "not installed (optional)" for name in OPTIONAL}
    facts |= _torch()
    problems = [f"{name} is not installed" for name in PACKAGES if facts[name] == "MISSING"]
    for what in ("current folder", "folder for temporary files"):
        if facts[what].endswith("not writable"):
            problems.append(f"the {what} is not writable")
    if as_json:
        print_json({"facts": facts, "problems": problems})
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            say(f"{name.ljust(width)}  {value}", indent=width + 2)
        say()
        say("\n".join(f"problem: {problem}" for problem in problems) or "No problems found.")
    raise typer.Exit(1 if problems else 0)


def _machine() -> dict[str, str]:
    from selfcal import __version__

    colour = "off (NO_COLOR)" if "NO_COLOR" in os.environ else "on" if sys.stdout.isatty() else "off"
    return {
        "selfcal": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": f"{os.cpu_count()}",
        "terminal": f"{'yes' if sys.stderr.isatty() else 'no'}, TERM={os.environ.get('TERM', '')}, colour {colour}",
        "encoding": sys.stdout.encoding,
        "current folder": _writable(os.getcwd()),
        "folder for temporary files": _writable(tempfile.gettempdir()),
    }


def _writable(folder: str) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return f"{folder}, writable"
    except OSError:
        return f"{folder}, not writable"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _torch() -> dict[str, Any]:
    if _installed("torch") is None:
        return {}
    import torch

    from selfcal import recipes

    cuda = f"CUDA devices: {torch.cuda.device_count()}" if torch.cuda.is_available() else "no CUDA device"
    return {
        "torch threads": f"{torch.get_num_threads()}",
        "torch build": f"{cuda}, built for {'CUDA ' + torch.version.cuda if torch.version.cuda else 'the CPU'}",
        "methods": ", ".join(recipes.names()),
    }
