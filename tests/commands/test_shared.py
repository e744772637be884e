import io
import sys

import pytest

from selfcal.commands import _shared
from selfcal.commands._outputs import check_results_folder
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.schema import column_named


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    """Called in a test, since pytest puts its own stream there before."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    return screen


def test_messages_on_a_terminal_break_between_words(monkeypatch):
    terminal = on_terminal(monkeypatch)
    _shared.say("error: The table must have a column 'diagnosis'.\nSecond line.", err=True)
    assert terminal.getvalue() == "error: The table must have a\ncolumn 'diagnosis'.\nSecond line.\n"


def test_elsewhere_they_stay_as_they_are(capsys):
    _shared.say("x " * 200, err=True)
    assert capsys.readouterr().err == "x " * 200 + "\n"


def test_the_bar_is_gone_when_an_error_is_told(monkeypatch, tmp_path):
    terminal = on_terminal(monkeypatch)
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    with (
        pytest.raises(DataError, match="column 'b'"),
        _shared.read_showing("Reading", str(tmp_path / "t.csv")) as parts,
    ):
        column_named(next(parts), "b")
    assert "Reading" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is empty again


def test_a_file_that_another_process_is_writing_does_not_make_a_folder_foreign(tmp_path):
    (tmp_path / ".results.json.4711.tmp").write_text("{")
    check_results_folder(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match=r"holds 'notes\.txt'"):
        check_results_folder(tmp_path)
