"""Networks: multilayer perceptrons for tables, ResNets and a VGG for small images."""

from selfcal.models.gaussian import discriminant
from selfcal.models.images import resnet8, resnet18, resnet50, vgg16
from selfcal.models.origin import origin
from selfcal.models.tables import (
    FOR_TABLES,
    columns_to_encode,
    for_table,
    mlp,
    realmlp,
    spread_columns,
    tabm,
    tabular,
)

__all__ = [
    "FOR_TABLES",
    "columns_to_encode",
    "discriminant",
    "for_table",
    "mlp",
    "origin",
    "realmlp",
    "resnet8",
    "resnet18",
    "resnet50",
    "spread_columns",
    "tabm",
    "tabular",
    "vgg16",
]
