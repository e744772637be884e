"""The names of methods, for commands that check a name before they load what trains.

A test compares them with `selfcal.recipes` and `selfcal.calibrators`.
"""

CALIBRATORS = (
    "temperature",
    "ensemble_temperature",
    "attended_temperature",
    "vector",
    "matrix",
    "structured_matrix",
    "dirichlet",
    "platt",
    "beta",
    "isotonic",
    "histogram",
    "bbq",
    "scaling_binning",
    "polynomial",
    "field_aware",
)
METHODS = (
    "auto",
    "crossfit",
    "ensemble",
    "standard",
    "isoreg",
    "bo4sc",
    "gamma_net_sece",
    "gamma_net_dece",
    "gamma_net",
    "ce_dece",
    "ce_sece",
    "focal",
    "flsd",
    "label_smoothing",
    "mbls",
    "lp_norm",
    "entropy",
    "brier",
    "mixup",
    "mmce",
    "mdca",
    "soft_ece",
    "soft_avuc",
    *CALIBRATORS,
)
