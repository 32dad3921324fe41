"""Start-up table rows about pretrained weights and resolved config values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtrain import config as config_lib
from jaxtrain.errors import counted
from jaxtrain.models import MODELS, lasting_options
from jaxtrain.trainer.resolve import from_weights, of_model, options_of
from jaxtrain.weights import NUM_SHOWN
from jaxtrain.weights.channels import statistics

if TYPE_CHECKING:
    from jaxtrain.config import Config
    from jaxtrain.trainer.trainer import Trainer
    from jaxtrain.weights.stored import Weights


def settled_rows(trainer: Trainer) -> dict[str, str]:
    """Rows about pretrained weights, resolved config values and method inputs."""
    rows = _describe_settled(trainer.recipe, trainer.config, trainer.trained)
    if trainer.pretrained is not None:
        rows |= trainer.pretrained.rows
    if trainer.method_inputs is not None:
        rows |= trainer.method_inputs.describe()
    return rows


def _describe_settled(
    recipe: Config, config: Config, trained: Weights | None
) -> dict[str, str]:
    """Rows about pretrained weights, and the config values resolved from weights."""
    model = config.model
    if model.pretrained is None:
        return {}
    digest = f", sha256 {(model.pretrained_digest or 'unknown')[:NUM_SHOWN]}"
    if trained is None:
        return {"weights": f"started from {model.pretrained}{digest}"}
    taken, changed = [], []
    before, after = config_lib.values_of(recipe), config_lib.values_of(config)
    for path, value in _recorded_values(trained, config).items():
        used = after.get(path)
        if before.get(path) in (None, {}):
            taken += [f"{path} = {_shown(used)}"] if used is not None else []
        elif used != value:
            changed.append(f"{path} = {_shown(used)}, the weights have {_shown(value)}")
    rows = {
        "weights": trained.where + digest,
        "from the weights": "; ".join(taken),
        "set in the recipe": "; ".join(changed),
    }
    return {name: text for name, text in rows.items() if text}


def _recorded_values(trained: Weights, config: Config) -> dict[str, Any]:
    """Config values recorded with the pretrained weights, by field path."""
    about = trained.about
    found: dict[str, Any] = {}
    if config.data.image_size is not None:
        names = ["interpolation"]
        if of_model(about.model, config.model):
            names = from_weights(config.data, "resizing")
        found |= {f"data.{name}": getattr(about, name) for name in names}
    channels = len(config.data.mean or about.mean)
    mean, std = statistics(about.mean, about.std, channels)
    known = about.model.name in MODELS
    options = lasting_options(about.model) if known else options_of(about.model)
    if about.model.channels:
        options |= {"channels": about.model.channels}
    found |= {"data.mean": mean, "data.std": std}
    return found | {f"model.{name}": value for name, value in options.items()}


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(f'{x:.4g}' for x in value)})"
    if isinstance(value, dict):
        return f"values of {counted(len(value), 'layer')}"
    return f"{value:g}" if isinstance(value, float) else repr(value)
