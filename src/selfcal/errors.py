"""The typed errors of selfcal; each says what was expected, what came, and what to do."""


class SelfcalError(Exception):
    """Base of every error selfcal raises on purpose; `exit_code` is what the command line ends with."""

    exit_code = 1


class ConfigError(SelfcalError, ValueError):
    """Settings that do not fit together or are out of range."""

    exit_code = 2


class DataError(SelfcalError, ValueError):
    """Data that cannot be used as given."""

    exit_code = 3


class TrainingError(SelfcalError, RuntimeError):
    """Training started and could not go on."""

    exit_code = 4


class ModelFormatError(SelfcalError, ValueError):
    """A stored model that is damaged, hostile, or of a version this one cannot read."""

    exit_code = 5


class OutputError(SelfcalError, OSError):
    """A result could not be written."""

    exit_code = 6


class CheckpointError(ModelFormatError):
    """A checkpoint that is damaged beyond use, or that belongs to another run."""


class Interrupted(SelfcalError, KeyboardInterrupt):  # noqa: N818 - an end, not an error
    """A signal asked training to stop; it stopped after a step, and its checkpoint is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.number = signal_number
        self.exit_code = 128 + signal_number


class DataTypeError(DataError, TypeError):
    """A value of a type that cannot be used, such as a dictionary in a column of numbers."""


class CalibrationWarning(UserWarning):
    """A calibrator was fitted, but not as one would wish: at a bound, or not at all."""


class PromiseWarning(UserWarning):
    """A promise was asked for that the data at hand cannot support."""


class TimeBudgetWarning(UserWarning):
    """The time budget left out a part of the training."""


class UnsealedModelWarning(UserWarning):
    """A stored model of format 1, which has no hash of `model.json`: a change of it would not be noticed."""


class RecoveryWarning(UserWarning):
    """Something went wrong and was mended: a damaged checkpoint, a loss that was not finite."""
