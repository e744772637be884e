"""Over the drink-drive limit or not: a simulation after Widmark.

Arrays of two are indexed by gender (man, woman), arrays of three by meal (none, light, full). A spread is
the standard deviation between people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from selfcal._support.checks import Float, Int, in_range
from selfcal.datasets._base import Feature, GenerativeDataset

LIMIT = 0.8
"""g/L of blood: 80 mg in 100 mL, England and Wales, Road Traffic Act 1988, section 11."""

GRAMS_PER_UNIT = 7.9
"""A unit of the United Kingdom is 10 mL of ethanol, at 0.789 g/mL."""

BLOOD_DENSITY = 1.055
"""kg/L; Widmark's factor is for g of ethanol in kg of blood, the law and the elimination rates for g/L."""

WIDMARK_FACTOR, WIDMARK_SPREAD = np.array([0.68, 0.55]), np.array([0.085, 0.055])
"""Fraction of the body's weight over which ethanol distributes as in blood (Widmark 1932)."""

ELIMINATION_RATE, ELIMINATION_SPREAD = np.array([0.189, 0.214]), np.array([0.048, 0.053])
"""g/L per hour, from 976 men and 114 women stopped for drink-driving (Jones and Andersson 1996)."""

MEAL_FACTOR = np.array([1.0, 0.72, 0.50])
"""Peak concentration after a light breakfast and after a steak, as a fraction of fasting (Lin et al. 1976)."""

NOISE = 0.15
"""Within one person 2% of the variance of the distribution volume and 3% of that of the elimination capacity
remain (Norberg et al. 2000): √.02 to √.03 of the spread. It also makes the Bayes accuracy .99."""

WEIGHT_MEDIAN, WEIGHT_LOG_SPREAD = np.array([84.0, 71.0]), 0.17
DURATION_RANGE = (60.0, 240.0)
UNITS_RANGE = (0.0, 18.0)
"""Our choice of the population: kg, minutes and units of an evening, so that four in ten are over the limit."""

NODES = 64
"""Gauss-Hermite nodes for the elimination rate: converged to rounding at the default noise, to 1e-10 at one."""


@dataclass(frozen=True)
class BloodAlcohol(GenerativeDataset):
    """Whether a person's blood alcohol is over the limit, from five known features: a Widmark simulation.

    A person of weight w kg drank u units over t hours, after meal m (0 none, 1 light, 2 full), gender g
    (0 man, 1 woman). With the fraction r of the body weight that ethanol distributes over and the elimination rate β,
    both unknown and Gaussian around their published means with `noise` times the published spread,

        C = 1.055 · meal_m · 7.9 u / (r w) - β t   in g/L,        y = 1[C > 0.8].

    Given β, the limit is passed when r falls below dose / (0.8 + β t), a Gaussian tail; the other integral is
    Gauss-Hermite quadrature:

        P(y=1 | x) = ∫ Φ( (dose / (0.8 + β t) - r_g) / (noise s_g) ) N(β; β_g, noise² b_g²) dβ.

    The data that the papers on this problem use (Nugent and Cunningham 2005) are not public; this is a
    simulation with the same five features, not a copy. Never use it to decide whether someone may drive.

    Args:
        noise: spread of r and β as a fraction of the spread between people; 1 is a stranger (Bayes accuracy .94),
            the default is about what remains from day to day within one person whose own means are known.

    Example:
        >>> bac = BloodAlcohol()
        >>> man, woman = [80, 0, 0, 120, 7.5], [60, 1, 0, 120, 7.5]  # fasting, 7.5 units in two hours
        >>> bac.posterior([man, woman]).round(2)
        array([[0.86, 0.14],
               [0.  , 1.  ]])

    Reference:
        E. M. P. Widmark, Die theoretischen Grundlagen und die praktische Verwendbarkeit der
        gerichtlich-medizinischen Alkoholbestimmung, Urban & Schwarzenberg, 1932.
        P. E. Watson, I. D. Watson, R. D. Batt, Prediction of blood alcohol concentrations in human subjects:
        updating the Widmark equation, J. Stud. Alcohol 42 (1981) 547-556 (r from height and age as well).
        A. W. Jones, L. Andersson, Influence of age, gender, and blood-alcohol concentration on the
        disappearance rate of alcohol from blood in drinking drivers, J. Forensic Sci. 41 (1996) 922-926.
        A. W. Jones, Evidence-based survey of the elimination rates of ethanol from blood with applications in
        forensic casework, Forensic Sci. Int. 200 (2010) 1-20.
        Y. Lin et al., Effects of solid food on blood levels of alcohol in man, Res. Commun. Chem. Pathol.
        Pharmacol. 13 (1976) 713-722.
        Å. Norberg et al., Within- and between-subject variations in pharmacokinetic parameters of ethanol by
        analysis of breath, venous blood and urine, Br. J. Clin. Pharmacol. 49 (2000) 399-408.
        C. Nugent, P. Cunningham, A case-based explanation system for black-box systems, Artif. Intell. Rev.
        24 (2005) 163-178.
    """

    noise: float = NOISE

    n_classes: ClassVar[int] = 2
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("weight", low=1),
        Feature("gender", low=0, high=1, whole=True),
        Feature("meal", low=0, high=2, whole=True),
        Feature("duration", low=0),
        Feature("units", low=0),
    )

    def __post_init__(self) -> None:
        in_range("noise", self.noise, 0.0, 1.0, open_low=True)

    @property
    def name(self) -> str:
        """`bac`, followed by the noise if it is not the default."""
        return "bac" if self.noise == NOISE else f"bac-{self.noise:g}"

    def _draw(self, n: int, rng: np.random.Generator) -> tuple[Float, Int]:
        gender, meal = rng.integers(2, size=n), rng.integers(3, size=n)
        weight = WEIGHT_MEDIAN[gender] * np.exp(WEIGHT_LOG_SPREAD * rng.standard_normal(n))
        duration, units = rng.uniform(*DURATION_RANGE, n), rng.uniform(*UNITS_RANGE, n)
        X = np.stack([weight, gender, meal, duration, units], axis=1)
        factor = WIDMARK_FACTOR[gender] + self.noise * WIDMARK_SPREAD[gender] * rng.standard_normal(n)
        rate = ELIMINATION_RATE[gender] + self.noise * ELIMINATION_SPREAD[gender] * rng.standard_normal(n)
        concentration = _dose(X) / factor - rate * duration / 60
        return X, (concentration > LIMIT).astype(np.int64)

    def _posterior(self, X: Float) -> Float:
        gender, hours = X[:, 1].astype(np.int64)[:, None], X[:, 3, None] / 60
        node, weight = np.polynomial.hermite_e.hermegauss(NODES)
        rate = ELIMINATION_RATE[gender] + self.noise * ELIMINATION_SPREAD[gender] * node
        needed = LIMIT + rate * hours
        surplus = _dose(X)[:, None] - WIDMARK_FACTOR[gender] * needed
        z = surplus / (self.noise * WIDMARK_SPREAD[gender] * np.abs(needed))
        masses = np.stack([ndtr(-z) @ weight, ndtr(z) @ weight], axis=1)
        probabilities: Float = masses / masses.sum(axis=1, keepdims=True)  # never above one by rounding
        return probabilities


def _dose(X: Float) -> Float:
    """Return what reaches the blood per kg of body, times the density of blood, so that C = dose / r - β t."""
    weight, meal, units = X[:, 0], X[:, 2].astype(np.int64), X[:, 4]
    dose: Float = BLOOD_DENSITY * MEAL_FACTOR[meal] * GRAMS_PER_UNIT * units / weight
    return dose
