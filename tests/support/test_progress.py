import io
import sys

from selfcal._support import progress
from selfcal._support.progress import progress_bar


def test_silent_where_there_is_no_terminal(capsys):
    with progress_bar("Training", total=2) as advance:
        advance(1, "loss 0.5")
    assert capsys.readouterr() == ("", "")


def test_shows_loss_and_count_and_no_markup(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("[red]Training", total=2) as advance:
        advance(1, "loss 0.5 [bold]")
    assert "[red]Training" in terminal.getvalue()
    assert "1/2" in terminal.getvalue()
    assert "loss 0.5 [bold]" in terminal.getvalue()


def test_a_log_gets_a_plain_line_from_time_to_time(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    with progress_bar("Training", total=2_000, show=True) as advance:
        advance(1_000, "loss 0.5")
    assert capsys.readouterr().err == "Training 1,000/2,000 loss 0.5, at most 0 s left\n"
    with progress_bar("Reading", total=None, show=True) as advance:
        advance(1_000, "rows")
    assert capsys.readouterr().err == "Reading 1,000 rows\n"
    with progress_bar("Training", total=2, show=False) as advance:
        advance(1)
    assert capsys.readouterr().err == ""
