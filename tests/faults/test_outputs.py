"""D31: where a command is told to write what would be lost, it exits with 2 and changes nothing."""

import shutil

import pytest

from tests.commands.conftest import QUICK, as_json, inline, run, shelf, succeed

__all__ = ["shelf"]  # the fixture


@pytest.fixture
def desk(shelf, tmp_path, monkeypatch):
    """The current folder, with copies of the table, the model and the predictions."""
    folder = tmp_path / "desk"
    shutil.copytree(shelf, folder)
    monkeypatch.chdir(folder)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder, *words):
    """Run the command, which must change nothing in the folder; what it said."""
    before = contents(folder)
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert contents(folder) == before
    return result.stderr


FIT = ["fit", "people.csv", "--target", "kind", *QUICK]
FOLDERS = {
    "fit": FIT,
    "tune": ["tune", "people.csv", "--target", "kind", "--seeds", "1", "--max-epochs", "2", "--jobs", "1"],
    "compare": ["compare", "people.csv", "--target", "kind", "--seeds", "1", "--max-epochs", "2"],
    "demo": ["demo"],
    "reproduce": ["reproduce", "bo4sc", "--seeds", "1", "--datasets", "bac"],
    "reproduce-images": ["reproduce", "loss-functions", "--data-dir", "nowhere"],
}


@pytest.mark.fault("D31")
@pytest.mark.parametrize("place", [".", "/", "..", "people.csv", "../desk"])
@pytest.mark.parametrize("command", FOLDERS)
def test_folders_that_hold_something_else(command, place, desk):
    refused(desk, *FOLDERS[command], "--out", place)


@pytest.mark.fault("D31")
@pytest.mark.parametrize("place", [".", "/", "..", "link"])
def test_a_model_never_replaces_the_folder_one_works_in(place, desk):
    """Not even an empty one, and not by another name: a shell would be left in a folder that is gone."""
    empty = desk / "empty" / "below"
    empty.mkdir(parents=True)
    (empty.parent / "link").symlink_to(empty)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(empty)
        where = {"link": empty.parent / "link"}.get(place, place)
        said = refused(desk, "fit", "../../people.csv", *FIT[2:], "--force", "--out", where)
    assert "is or contains the current folder" in said


@pytest.mark.fault("D31")
def test_a_model_is_replaced_only_by_force(desk):
    assert "already holds a model with target 'kind'" in refused(desk, *FIT)
    other = refused(desk, "fit", "people.csv", "--target", "colour", *QUICK)
    assert "people-model already holds a model with target 'kind'. Add --force" in other
    refused(desk, *FIT, "--resume")
    succeed("fit", "people.csv", "--target", "colour", *QUICK, "--force")
    assert as_json("inspect", "people-model")["schema"]["target"] == "colour"


@pytest.mark.fault("D31")
def test_a_tuned_model_is_replaced_only_by_force(desk):
    shutil.copytree("people-model", "people-tuned/model")
    assert "already holds a model" in refused(desk, *FOLDERS["tune"])


@pytest.mark.fault("D31")
@pytest.mark.parametrize(
    ("command", "change", "differs"),
    [
        ("compare", ["--target", "colour"], "target"),
        ("compare", ["--max-epochs", "3"], "settings"),
        ("tune", ["--target", "colour"], "target"),
        ("tune", ["--method", "focal"], "method"),
    ],
)
def test_results_for_something_else_are_replaced_only_by_force(command, change, differs, desk, monkeypatch):
    monkeypatch.setattr("selfcal.workflows.comparison.run_all_units", inline)
    given = {"--target": "kind", "--max-epochs": "2", "--seeds": "1", "--jobs": "1", "--out": "results"}
    given |= (
        {"--method": "standard", "--grid": "hidden=4"} if command == "tune" else {"--methods": "standard"}
    )

    def words(options):
        return [command, "people.csv", *(word for pair in options.items() for word in pair)]

    succeed(*words(given))
    shutil.rmtree("results/model", ignore_errors=True)
    other = words(given | dict([change]))
    said = refused(desk, *other)
    assert said == (
        f"error: results/results.json holds results for other settings ({differs}). Choose another --out folder, "
        "or add --force to replace them.\n"
    )
    before = (desk / "results" / "results.json").read_text()
    succeed(*other, "--force")
    assert (desk / "results" / "results.json").read_text() != before


@pytest.mark.fault("D31")
@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "report.html"])
def test_a_file_of_the_model_is_not_an_output(name, desk):
    said = refused(desk, "export", "people-model", "--onnx", f"people-model/{name}", "--force")
    assert said == f"error: --onnx must not name the input people-model/{name}, which would be lost.\n"
    (desk / "link.csv").symlink_to(desk / "people-model" / name)
    refused(desk, "predict", "people-model", "people.csv", "--out", "link.csv", "--force")


@pytest.mark.fault("D31")
def test_a_damaged_model_is_not_replaced_either(desk):
    (desk / "people-model" / "model.safetensors").write_bytes(b"")
    assert "already holds files of a model. Add --force" in refused(desk, *FIT)


FILES = {
    "predict": (["predict", "people-model", "people.csv", "--out"], "people.csv", "out.csv"),
    "calibrate": (
        ["calibrate", "predictions.csv", "--target", "kind", "--out"],
        "predictions.csv",
        "out.csv",
    ),
    "calibrate-apply": (
        ["calibrate", "people-model/../predictions.csv", "--target", "kind", "--apply", "copy.csv", "--out"],
        "copy.csv",
        "out.csv",
    ),
    "report": (["report", "page.html", "--target", "kind", "--out"], "page.html", "out.html"),
    "evaluate": (["evaluate", "page.html", "--target", "kind", "--report"], "page.html", "out.html"),
    "export": (["export", "people-model", "--onnx"], "people-model", "out.onnx"),
}


@pytest.mark.fault("D31")
@pytest.mark.parametrize("command", FILES)
def test_files_are_replaced_only_by_force_and_the_input_never(command, desk, monkeypatch):
    monkeypatch.setattr("selfcal.storage.export.to_onnx", lambda _, path, **__: path.write_bytes(b"a graph"))
    words, source, out = FILES[command]
    for name in ("copy.csv", "page.html"):
        shutil.copyfile("predictions.csv", name)
    (desk / f"link{(desk / out).suffix}").symlink_to(desk / source)
    for place in (source, f"{desk}/../desk/{source}", f"link{(desk / out).suffix}"):
        for more in ([], ["--force"]):
            refused(desk, *words, place, *more)
    (desk / out).write_text("mine")
    said = refused(desk, *words, out)
    assert f"{out} already exists. Add --force to replace it" in said
    succeed(*words, out, "--force")
    assert (desk / out).read_bytes() != b"mine"


@pytest.mark.fault("D31")
@pytest.mark.parametrize("name", ["out.json", "out_model_card.md"])
@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_what_comes_with_a_page_is_not_replaced_either(command, name, desk):
    (desk / name).write_text("mine")
    option = {"report": "--out", "evaluate": "--report"}[command]
    refused(desk, command, "predictions.csv", "--target", "kind", option, "out.html")


@pytest.mark.fault("D31")
@pytest.mark.parametrize("place", [".", "/", "people-model"])
@pytest.mark.parametrize("command", FILES)
def test_a_folder_is_not_a_file_to_write(command, place, desk):
    shutil.copyfile("predictions.csv", "page.html")
    shutil.copyfile("predictions.csv", "copy.csv")
    refused(desk, *FILES[command][0], place, "--force")


@pytest.mark.fault("D31")
def test_a_link_that_leads_nowhere_is_not_replaced(desk):
    (desk / "out.csv").symlink_to(desk / "gone")
    refused(desk, *FILES["predict"][0], "out.csv")


@pytest.mark.fault("D31")
def test_the_demo_is_written_again_only_by_force(desk, monkeypatch):
    (desk / "selfcal-demo").mkdir()
    (desk / "selfcal-demo" / "report.html").write_text("mine")
    refused(desk, "demo")
    monkeypatch.setattr("selfcal.experiments.demo.run_demo", lambda out: [])
    succeed("demo", "--force")
