"""Any loss of this package as an `nn.Module`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from selfcal._support.checks import one_of
from selfcal.errors import ConfigError, DataError
from selfcal.losses._rows import Hyper
from selfcal.training.interfaces import Loss

_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "none": lambda values: values,
}


def fixed(loss: Loss, **settings: Hyper | str) -> Loss:
    """Return the loss with these hyperparameters; unknown names and numbers out of range are errors.

    Example:
        >>> from selfcal import losses
        >>> fixed(losses.focal, gamma=2.0).keywords
        {'gamma': 2.0}
    """
    if not callable(loss):
        raise ConfigError(f"loss must be a loss function such as losses.focal; got {loss!r}.")
    keywords = list(inspect.signature(loss).parameters)[2:]
    for setting in settings:
        if not keywords:
            raise ConfigError(f"The loss {name_of(loss)} has no hyperparameters; got {setting!r}.")
        one_of(f"A hyperparameter of {name_of(loss)}", setting, keywords)
    # two rows are enough to check the numbers; tensors may have been made for other batches.
    numbers = {key: value for key, value in settings.items() if not isinstance(value, Tensor)}
    loss(torch.zeros(2, 2), torch.tensor([0, 1]), **numbers)
    return partial(loss, **settings)


def name_of(loss: Loss) -> str:
    """Return the name of the loss."""
    return getattr(loss, "__name__", repr(loss))


class LossModule(nn.Module):
    """A loss for a training loop of your own, called as ``module(logits, target)``.

    Args:
        loss: A loss function, such as `losses.focal`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, as in torch.
        **settings: Hyperparameters of the loss.

    Example:
        >>> import torch
        >>> from selfcal import losses
        >>> criterion = LossModule(losses.focal, gamma=2.0)
        >>> criterion
        LossModule(focal, gamma=2.0, reduction='mean')
        >>> criterion(torch.zeros(8, 4), torch.arange(8) % 4)
        tensor(0.7798)
    """

    def __init__(self, loss: Loss, *, reduction: str = "mean", **settings: Hyper | str) -> None:
        super().__init__()
        self.loss = fixed(loss, **settings)
        self.reduction = one_of("reduction", reduction, _REDUCTIONS)
        self._shown = [name_of(loss), *(f"{key}={value!r}" for key, value in settings.items())]

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of these logits (n, k) for these label codes (n,)."""
        table = logits.ndim == 2 and len(logits) > 0 and logits.shape[1] > 1
        codes = target.dtype != torch.bool and not target.is_floating_point()
        if not (table and codes and target.shape == logits.shape[:1]):
            raise DataError(
                "Expected logits of shape (rows, classes), two classes at least, and a label code for each row; "
                f"got shape {tuple(logits.shape)}, and {str(target.dtype).removeprefix('torch.')} of shape "
                f"{tuple(target.shape)}."
            )
        low, high = (int(code) for code in target.aminmax())
        if low < 0 or high >= logits.shape[1]:
            raise DataError(
                f"Labels must be class codes from 0 to {logits.shape[1] - 1}, one less than there are logits; got "
                f"{low if low < 0 else high}."
            )
        return _REDUCTIONS[self.reduction](self.loss(logits, target.long()))

    def extra_repr(self) -> str:
        """The loss and its settings, as they were given."""
        return ", ".join([*self._shown, f"reduction={self.reduction!r}"])
