"""The errors and warnings of selfcal; a message states what was expected, what came, and what to do."""


class SelfcalError(Exception):
    """Base class of all errors that selfcal raises; `exit_code` is the exit code of the command line."""

    exit_code = 1


class ConfigError(SelfcalError, ValueError):
    """Settings that are inconsistent or out of range."""

    exit_code = 2


class DataError(SelfcalError, ValueError):
    """Data that cannot be used as given."""

    exit_code = 3


class TrainingError(SelfcalError, RuntimeError):
    """Training started and could not continue."""

    exit_code = 4


class WorkerError(TrainingError):
    """Worker processes died again and again."""


class ModelFormatError(SelfcalError, ValueError):
    """A stored model that is damaged, malicious, or of a version that cannot be read."""

    exit_code = 5


class OutputError(SelfcalError, OSError):
    """A result could not be written."""

    exit_code = 6


class CheckpointError(ModelFormatError):
    """A checkpoint that is damaged beyond use, or that belongs to another run."""


class Interrupted(SelfcalError, KeyboardInterrupt):  # noqa: N818 - an end, not an error
    """Training was stopped by a signal, after a step; its checkpoint is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.number = signal_number
        self.exit_code = 128 + signal_number


class DataTypeError(DataError, TypeError):
    """A value of a type that cannot be used, such as a dictionary in a column of numbers."""


class CalibrationWarning(UserWarning):
    """A calibrator could not be fitted well: a parameter is at its bound, or the fit was skipped."""


class PromiseWarning(UserWarning):
    """The requested guarantee cannot be given with the available data."""


class TimeBudgetWarning(UserWarning):
    """A part of the training was skipped because of the time budget."""


class UnsealedModelWarning(UserWarning):
    """A stored model of format 1, which has no hash of `model.json`: changes to it go unnoticed."""


class RecoveryWarning(UserWarning):
    """Training recovered from a problem: a damaged checkpoint, a loss that was not finite."""
