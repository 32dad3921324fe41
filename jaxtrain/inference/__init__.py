"""Trained models: loading, prediction, and prediction files of plug-ins."""

from typing import TYPE_CHECKING

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.inference.parts import PredictionPart

# Name -> `PredictionPart` subclass, which adds options to `main.py predict`.
PREDICTIONS: "Table[type[PredictionPart]]" = Table("predictions", {})
