"""Trained models: load them, predict images, and the files that plug-ins write."""

from typing import TYPE_CHECKING

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.inference.parts import PredictionPart

# Name -> files of `predict` with options of their own.
PREDICTIONS: "Table[type[PredictionPart]]" = Table("predictions", {})
