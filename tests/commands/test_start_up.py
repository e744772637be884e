"""Commands answer at once where nothing has to be trained or predicted: without torch."""

import subprocess
import sys

import pytest

from selfcal import calibrators, recipes
from selfcal._support.method_names import CALIBRATORS, METHODS

PROGRAM = """
import sys
from selfcal.commands.app import app
try:
    app(sys.argv[1:])
except SystemExit as ended:
    print("exit", ended.code, sorted({"torch", "sklearn", "matplotlib"} & sys.modules.keys()), file=sys.stderr)
"""
WORDS = {
    "help": (0, "Commands", ["--help"]),
    "help of a command": (0, "--time-budget", ["fit", "--help"]),
    "no such file": (3, "nosuch.csv", ["fit", "nosuch.csv", "--target", "y"]),
    "method of fit": (2, "Did you mean 'bo4sc'?", ["fit", "d.csv", "--target", "y", "--method", "bo4cs"]),
    "method of tune": (2, "Did you mean 'bo4sc'?", ["tune", "d.csv", "--target", "y", "--method", "bo4cs"]),
    "methods": (2, "Did you mean 'focal'?", ["compare", "d.csv", "--target", "y", "--methods", "focl"]),
    "calibrator": (
        2,
        "Did you mean 'isotonic'?",
        ["calibrate", "d.csv", "--target", "y", "--out", "o.csv", "--calibrator", "isotnic"],
    ),
    "time budget": (
        2,
        "--time-budget must be",
        ["compare", "d.csv", "--target", "y", "--time-budget", "-3"],
    ),
    "existing model": (2, "a model with target 'kind'", ["fit", "d.csv", "--target", "y", "--out", "MODEL"]),
    "inspect": (0, "Verdict: ", ["inspect", "MODEL"]),
    "inspect as JSON": (0, "report_numbers", ["inspect", "MODEL", "--json"]),
}


@pytest.mark.parametrize("case", WORDS)
def test_without_torch(case, shelf, tmp_path):
    code, text, words = WORDS[case]
    (tmp_path / "d.csv").write_text("a,y\n1,n\n2,p\n")
    words = [str(shelf / "people-model") if word == "MODEL" else word for word in words]
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stderr.splitlines()[-1] == f"exit {code} []"
    assert text in said.stdout + said.stderr


def test_the_names_are_those_of_the_recipes_and_calibrators():
    assert list(METHODS) == recipes.names()
    assert list(CALIBRATORS) == list(calibrators.POST_HOC)
