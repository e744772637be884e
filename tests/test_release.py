"""What a release consists of: one version everywhere, bounds and pins that agree, and a bill of materials."""

import json
import re
import subprocess
import sys
import tomllib
from datetime import date
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import selfcal

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(name):
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def test_version_and_date_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {selfcal.__version__}\n" in citation
    newest = re.search(r"^## \[([\d.]+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == selfcal.__version__
    assert f'date-released: "{date.fromisoformat(newest[2])}"' in citation


def test_pins_are_within_the_bounds():
    pinned = pins("constraints.txt")
    for text in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        wanted = Requirement(text)
        if wanted.name != "selfcal" and canonicalize_name(wanted.name) in pinned:
            assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), text
    core = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert core <= pinned.keys()


def test_hashes_are_those_of_the_pins():
    pinned, hashed = pins("constraints.txt"), pins("constraints-hashes.txt")
    core = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert core - {"torch"} <= hashed.keys()
    assert "torch" not in hashed
    assert not {
        name for name in hashed.keys() & pinned.keys() if Version(hashed[name]) != Version(pinned[name])
    }
    text = (ROOT / "constraints-hashes.txt").read_text()
    assert "://" not in text
    assert "/opt/" not in text


@pytest.mark.filterwarnings("ignore")
def test_the_bill_of_materials_names_every_dependency_and_nothing_of_the_machine(tmp_path):
    file = tmp_path / "sbom.json"
    ran = subprocess.run(
        [sys.executable, ROOT / ".ci" / "sbom", "selfcal", file], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    bom = json.loads(file.read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    names = {part["name"] for part in bom["components"]}
    assert {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]} <= names
    references = [part["bom-ref"] for part in bom["components"]]
    assert len(set(references)) == len(references)
    known = {*references, bom["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bom["dependencies"]} == known
    assert {ref for one in bom["dependencies"] for ref in one["dependsOn"]} <= known
    assert str(Path.home()) not in file.read_text()
    assert sys.prefix not in file.read_text()
