import sys

from tests.commands.conftest import QUICK, run, succeed


def test_without_the_extra_it_says_what_to_install(shelf, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = run("export", shelf / "people-model", "--onnx", tmp_path / "model.onnx")
    assert result.exit_code == 2
    assert "pip install 'selfcal[export]'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_calibrator_that_is_no_formula_is_told(shelf, tmp_path):
    model = tmp_path / "model"
    fitting = ["--method", "histogram", *QUICK[2:]]
    succeed("fit", shelf / "people.csv", "--target", "kind", "--out", model, *fitting)
    result = run("export", model, "--onnx", tmp_path / "model.onnx")
    assert result.exit_code == 2
    assert "got HistogramBinning" in result.stderr
    assert not (tmp_path / "model.onnx").exists()
