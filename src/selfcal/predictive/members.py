"""The members of one network, such as a BatchEnsemble."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from selfcal.errors import ConfigError
from selfcal.training.batches import Batches
from selfcal.training.interfaces import Predictive
from selfcal.training.problem import n_answers


@dataclass(frozen=True)
class Members(Predictive):
    """The network's own members: nothing is put around it, but it must have several.

    Such a network has the method `member_logits`, from rows to logits of shape (members, rows, classes), and the
    attribute `n_answers`, their number; see `models.batch_ensemble.MemberNetwork`.

    Example:
        >>> from selfcal.models import tabm
        >>> Members().check(tabm(2, 3))
    """

    def check(self, module: nn.Module) -> None:
        """Raise a `ConfigError` for a network without members."""
        if n_answers(module) < 2:
            raise ConfigError(
                f"The network must have several members, by member_logits(x) and n_answers; a "
                f"{type(module).__name__} has one. Use network='tabm'."
            )

    def fit(self, module: nn.Module, data: Batches, *, seed: int = 0) -> nn.Module:
        """The network itself."""
        return module
