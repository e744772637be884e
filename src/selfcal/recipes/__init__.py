"""The named methods, each a short composition of parts. Only this package names concrete methods."""

from __future__ import annotations

from collections.abc import Callable

from selfcal._support.checks import one_of
from selfcal.calibrators import POST_HOC
from selfcal.ensembles import Ensemble
from selfcal.recipes.bilevel import (
    bo4sc,
    ce_dece,
    ce_sece,
    gamma_net,
    gamma_net_dece,
    gamma_net_mmce,
    gamma_net_sece,
    one_run,
    restarted,
)
from selfcal.recipes.one_level import (
    brier,
    bsce_gra,
    cpc,
    dual_focal,
    dynamic_pruning,
    entropy,
    feature_clipping,
    flsd,
    focal,
    isoreg,
    label_smoothing,
    lp_norm,
    mbls,
    mdca,
    mixup,
    mmce,
    post_hoc,
    soft_avuc,
    soft_ece,
    standard,
    with_loss,
)
from selfcal.recipes.several_answers import batch_ensemble, laplace, mc_dropout
from selfcal.recipes.several_networks import auto, crossfit, ensemble
from selfcal.training.recipe import Recipe

__all__ = [
    "POST_HOC",
    "Ensemble",
    "Recipe",
    "auto",
    "batch_ensemble",
    "bo4sc",
    "brier",
    "bsce_gra",
    "ce_dece",
    "ce_sece",
    "cpc",
    "crossfit",
    "dual_focal",
    "dynamic_pruning",
    "ensemble",
    "entropy",
    "feature_clipping",
    "flsd",
    "focal",
    "gamma_net",
    "gamma_net_dece",
    "gamma_net_mmce",
    "gamma_net_sece",
    "isoreg",
    "label_smoothing",
    "laplace",
    "lp_norm",
    "mbls",
    "mc_dropout",
    "mdca",
    "mixup",
    "mmce",
    "named",
    "names",
    "one_run",
    "post_hoc",
    "restarted",
    "soft_avuc",
    "soft_ece",
    "standard",
    "with_loss",
]

_NAMED: dict[str, Callable[[], Recipe | Ensemble]] = {
    "auto": auto,
    "crossfit": crossfit,
    "ensemble": ensemble,
    "standard": standard,
    "isoreg": isoreg,
    "feature_clipping": feature_clipping,
    "bo4sc": bo4sc,
    "gamma_net_sece": gamma_net_sece,
    "gamma_net_dece": gamma_net_dece,
    "gamma_net_mmce": gamma_net_mmce,
    "gamma_net": gamma_net,
    "ce_dece": ce_dece,
    "ce_sece": ce_sece,
    "focal": focal,
    "flsd": flsd,
    "dual_focal": dual_focal,
    "bsce_gra": bsce_gra,
    "label_smoothing": label_smoothing,
    "mbls": mbls,
    "lp_norm": lp_norm,
    "entropy": entropy,
    "brier": brier,
    "cpc": cpc,
    "mixup": mixup,
    "dynamic_pruning": dynamic_pruning,
    "mmce": mmce,
    "mdca": mdca,
    "soft_ece": soft_ece,
    "soft_avuc": soft_avuc,
    "mc_dropout": mc_dropout,
    "laplace": laplace,
    "batch_ensemble": batch_ensemble,
}


def names() -> list[str]:
    """The names of all methods.

    Example:
        >>> names()[:3]
        ['auto', 'crossfit', 'ensemble']
    """
    return [*_NAMED, *POST_HOC]


def named(name: str) -> Recipe | Ensemble:
    """The method of that name with its default settings: a `Recipe` for one network, an `Ensemble` for several.

    Example:
        >>> named("bo4sc").inner_steps
        10
    """
    one_of("method", name, names())
    return post_hoc(POST_HOC[name](), name) if name in POST_HOC else _NAMED[name]()
