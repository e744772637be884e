import signal

import pytest

from selfcal._signals import stop_requests


def test_the_first_request_is_noted_and_the_second_acts():
    with stop_requests() as asked:
        assert asked() is None
        signal.raise_signal(signal.SIGINT)
        assert asked() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_handlers_come_back_after_an_error(number):
    before = signal.getsignal(number)

    with pytest.raises(ValueError, match="no number"), stop_requests():
        int("no number" if signal.getsignal(number) != before else "1")
    assert signal.getsignal(number) == before


def test_what_is_ignored_stays_ignored():
    """Under nohup a run goes on when its terminal is closed; so it is with the signals that were switched off."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_requests() as asked:
            signal.raise_signal(signal.SIGINT)
            assert asked() is None
    finally:
        signal.signal(signal.SIGINT, before)
