import io
import sys

from selfcal.progress import progress_bar


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
