"""Confidences with a known true risk at every threshold: uniform, with an error rate that falls as they rise."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class World:
    """Wrong with probability `base + slope (1 - c)^power`, except for a patch of wrong rows among the most confident.

    With `ties`, the confidences are rounded down to multiples of 1 / ties.
    """

    base: float = 0.0
    slope: float = 0.4
    power: int = 3
    patch: float = 0.0
    ties: int | None = None

    def draw(self, n, rng):
        c = rng.random(n)
        wrong = rng.random(n) < self.error_rate(1 - c)
        return wrong, c if self.ties is None else np.floor(c * self.ties) / self.ties

    def error_rate(self, u):
        return np.where(u < self.patch, 0.5, self.base + self.slope * u**self.power)

    def coverage(self, threshold):
        """The fraction of rows that a threshold accepts; if not 0 it lies just above one of the values, with ties."""
        if self.ties is not None:
            above = np.floor(threshold * self.ties + 1e-9) + 1
            threshold = np.where(threshold > 0, above / self.ties, 0.0)
        return np.clip(1 - threshold, 0, 1)

    def risk_at(self, coverage):
        """The fraction of wrong rows among the most confident."""
        smooth = self.base * coverage + self.slope * coverage ** (self.power + 1) / (self.power + 1)
        patch = np.minimum(coverage, self.patch)
        inside = self.base * patch + self.slope * patch ** (self.power + 1) / (self.power + 1)
        return (smooth - inside + 0.5 * patch) / np.maximum(coverage, 1e-300)

    def best_coverage(self, max_risk):
        grid = np.arange(1, 100_001) / 100_000
        return np.max(grid[self.risk_at(grid) <= max_risk], initial=0.0)


PLAIN = World()
WORLDS = {
    "plain": PLAIN,
    "never confident": World(base=0.01, slope=0.3, power=2),
    "flat": World(base=0.02, slope=0.12, power=1),
    "most confident are wrong": World(base=0.01, slope=0.2, power=2, patch=0.02),
    "ties": World(ties=40),
    "few values": World(base=0.01, slope=0.3, power=2, ties=8),
}
