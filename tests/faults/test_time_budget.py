"""A time budget that runs out: terminal, report, card and `inspect` say what was left out."""

import pytest

from tests.commands.conftest import as_json, people, succeed


@pytest.mark.fault("F20")
def test_what_was_left_out_is_noted_everywhere(tmp_path):
    people().write_csv(tmp_path / "people.csv")
    fitted = succeed(
        "fit", tmp_path / "people.csv", "--target", "kind", "--out", tmp_path / "model", "--time-budget", 1e-9
    )
    note = "The time budget of 1e-09 s left out a part of the training: 'boosting' has 1 of 10 members"
    assert note in " ".join(fitted.stderr.split())
    assert "'waves' was not trained" in fitted.stderr
    inspected = succeed("inspect", tmp_path / "model").output
    assert note in inspected
    assert "1 of 10 members, stopped by the time budget" in inspected
    assert "not trained: the time budget was used up" in inspected
    assert "left out a part of the training" in (tmp_path / "model" / "report.html").read_text()
    described = as_json("inspect", tmp_path / "model")["description"]["selection"]
    assert {(record["networks"], record["planned"]) for record in described} == {(1, 10), (0, 10)}
    assert [record["out_of_time"] for record in described if record["networks"]] == [True]
