"""Checks whether finished runs can be combined into one model."""

import dataclasses
from collections.abc import Sequence

from jaxtrain.config import Config, DataConfig
from jaxtrain.config.metadata import with_metadata
from jaxtrain.data import sources
from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel


def have_common_validation(configs: Sequence[Config]) -> bool:
    """Whether runs share a validation split that none of the runs was trained on.

    A validation split that is held out of the training split depends on the seed; the
    runs must then have the same seed.
    """
    first, *others = configs
    if sources.load(first.data, first.seed).validation is None:
        return False
    held_out = first.data.validation_split is None
    same = with_metadata(DataConfig, "of_validation")
    return all(
        (not held_out or other.seed == first.seed)
        and all(getattr(other.data, n) == getattr(first.data, n) for n in same)
        for other in others
    )


def check_alike(models: Sequence[TrainedModel], doing: str) -> None:
    """Check that models differ only in their weights.

    Args:
      models: Models to compare.
      doing: Imperative verb for messages, such as `join`.

    Raises:
      UserError: There are fewer than two models, or they differ.
    """
    if len(models) < 2:
        raise UserError(f"expected two or more models to {doing}, got {len(models)}")
    models[0].description.check_is_one("model 1")
    first, *others = (
        dataclasses.replace(model.description, chosen={}, jaxtrain="")
        for model in models
    )
    for number, other in enumerate(others, 2):
        names = [
            field.name
            for field in dataclasses.fields(first)
            if getattr(first, field.name) != getattr(other, field.name)
        ]
        if names:
            told = ", ".join(
                f"{n} = {getattr(other, n)!r}, not {getattr(first, n)!r}" for n in names
            )
            raise UserError(
                f"model {number} differs from the first model: {told}; {doing} runs of "
                "the same config, and set data.mean and data.std in the config if the "
                "runs have different training splits"
            )
