import io
import re
import sys
import threading

import pytest

from selfcal._support import progress
from selfcal._support.progress import progress_bar
from selfcal.commands._shared import note


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch, kind="xterm"):
    """Take a terminal for standard error; in a fixture, pytest would replace it."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", "120")
    return stream


@pytest.fixture
def every_line(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)


def percentages(text):
    return [int(found) for found in re.findall(r"(\d+)%", text)]


def test_silent_where_there_is_no_terminal(capsys):
    with progress_bar("Training", total=2) as advance:
        advance(1, "loss 0.5")
    assert capsys.readouterr() == ("", "")


def test_shows_percentage_and_note_and_no_markup(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with progress_bar("[red]Training", total=2) as advance:
        advance(1, "loss 0.5 [bold]")
    assert "[red]Training" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
    assert "loss 0.5 [bold]" in terminal.getvalue()


def test_what_is_printed_meanwhile_is_above_the_bar(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with progress_bar("Training", total=2) as advance:
        advance(1)
        note("an aside")
    last_bar = terminal.getvalue().rindex("Training")
    assert "an aside\n" in terminal.getvalue()[:last_bar]


def test_work_inside_is_a_part_of_the_whole_and_nothing_goes_back(every_line, capsys):
    with progress_bar("Training", 2, True) as whole:
        whole(0, "first", size=1)
        with progress_bar("Inside", 10, True) as inside:
            inside(2, "loss 0.9")
            inside(5, "loss 0.5")
            inside(4, "loss 0.6")  # training went back to an earlier state
        whole(1, "second", size=1)
        with progress_bar("Inside", 10, True) as inside:
            inside(5)
    said = capsys.readouterr().err
    assert "Training 25%: first, loss 0.5; " in said
    assert percentages(said) == sorted(percentages(said)) == [0, 10, 25, 25, 50, 75]
    assert "\r" not in said


def test_work_that_shows_nothing_inside_work_that_does(every_line, capsys):
    with progress_bar("Training", 2, True) as whole:
        whole(0, "first")
        with progress_bar("Inside", 10, False) as inside:
            inside(9)
    assert percentages(capsys.readouterr().err) == [0]


def test_a_time_budget_moves_the_bar_as_well(every_line, monkeypatch, capsys):
    monkeypatch.setattr(progress.time, "time", lambda: 1030.0)
    with progress_bar("Training", 10, True, time_budget=60, started=1000.0) as advance:
        advance(1)
        advance(8)
    assert capsys.readouterr().err == "Training 50%: 30 of 60 s\nTraining 80%: 30 of 60 s\n"


def test_the_time_left_leaves_out_what_an_earlier_run_has_done(every_line, monkeypatch, capsys):
    clock = iter([1000.0, 1000.0, 1100.0])
    monkeypatch.setattr(progress.time, "time", lambda: next(clock))
    with progress_bar("Comparing", 10, True) as advance:
        advance(5)
        advance(6)
    assert capsys.readouterr().err.endswith("Comparing 60%: about 7 min left\n")


def test_work_of_unknown_length_and_a_bar_that_is_off(every_line, capsys):
    with progress_bar("Reading", total=None, show=True) as advance:
        advance(1_000, "1,000 rows")
    assert capsys.readouterr().err == "Reading: 1,000 rows; 0 s\n"
    with progress_bar("Training", total=2, show=False) as advance:
        advance(1)
    assert capsys.readouterr().err == ""


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(every_line, monkeypatch):
    terminal = on_terminal(monkeypatch, "dumb")
    with progress_bar("Training", 4) as advance:
        advance(1)
    assert terminal.getvalue() == "Training 25%: 0 s\n"


def test_no_colour_where_none_is_wanted(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    with progress_bar("Training", 4) as advance:
        advance(1)
    assert not re.search(r"\x1b\[[\d;]*3\dm", terminal.getvalue())


def test_other_threads_show_nothing(every_line, capsys):
    def work():
        with progress_bar("Training", 2, True) as advance:
            advance(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert capsys.readouterr().err == ""
