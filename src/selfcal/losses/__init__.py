"""Per-row losses: pure functions ``(logits, y, **hyperparameters) -> (n,) values``; the caller reduces."""

from selfcal.losses.cross_entropy import cross_entropy

__all__ = ["cross_entropy"]
