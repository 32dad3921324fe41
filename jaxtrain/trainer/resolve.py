"""Resolution of config values from pretrained weights and from training targets.

Pretrained weights assume the preprocessing and model options of their training, so
fields unset in the recipe get the values recorded with the weights. `config.json`
contains these values and a digest of the weights; a resumed run does not need the
weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtrain import config as config_lib, own, weights as weights_lib
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.config.metadata import with_metadata
from jaxtrain.errors import UserError
from jaxtrain.models import CLASSIFIERS
from jaxtrain.models.blueprint import backbone_config
from jaxtrain.processes import cluster
from jaxtrain.regular_file import read_text
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.build import build_method

if TYPE_CHECKING:
    from jaxtrain.config import Config, DataConfig, ModelConfig
    from jaxtrain.weights.description import Description
    from jaxtrain.weights.stored import Weights


class ResolvedConfig(NamedTuple):
    """A resolved config, its pretrained weights and its training method.

    Attributes:
      config: Resolved config. Only `data.mean` and `data.std`, which depend on the
        number of image channels, are unresolved.
      trained: Pretrained weights; None in a resumed run or without `model.pretrained`.
      method: Training method of the run, after `Method.open`.
    """

    config: Config
    trained: Weights | None
    method: Method


def resolve_config(config: Config, workdir: Path | None = None) -> ResolvedConfig:
    """Fill in unset config fields from pretrained weights and the training method.

    Args:
      config: Config of the recipe.
      workdir: Workdir of a run to resume; its config has the resolved values.

    Raises:
      UserError: The weights are missing, belong to another model, or do not match
        `model.pretrained_digest`; or the method cannot open its files.
    """
    model, data = config.model, config.data
    begun = None if workdir is None else _saved_config(workdir)
    trained, prepared = None, dict[str, Any]()
    if model.pretrained is None:
        pass
    elif begun is not None and begun.model.pretrained == model.pretrained:
        asked, digest = model.pretrained_digest or "", begun.model.pretrained_digest
        if type(model) is type(begun.model):
            model = _with_options(model, begun.model, begun.model.set_options())
        if (digest or "").startswith(asked):
            model = dataclasses.replace(model, pretrained_digest=digest)
        prepared = {name: getattr(begun.data, name) for name in from_weights(data)}
    else:
        trained = open_weights(model)
        about, digest = trained.about, trained.digest()
        _check_name(about.model.name, model)
        if data.image_size is not None:
            prepared = _resizing(about, config)
        model = _with_options(model, about.model, options_of(about.model))
        model = dataclasses.replace(model, pretrained_digest=digest)
    data = _fill_unset(data, prepared)
    # An unset crop_mode remains None, as in the configs of older versions.
    crop_pct, interpolation, _ = data.fit
    data = dataclasses.replace(data, crop_pct=crop_pct, interpolation=interpolation)
    before = {} if begun is None else begun.method.arguments()
    given = config.method.arguments()
    method, options = build_method(config.method).open(given, before)
    part = config.method.updated(options)
    config = dataclasses.replace(config, model=model, data=data, method=part)
    return ResolvedConfig(config, trained, method)


def _check_name(found: str, model: ModelConfig) -> None:
    """Check that pretrained weights are for a model or for its backbone.

    Raises:
      UserError: The weights are for another model.
    """
    backbone = backbone_config(model)
    if own.is_own(model.name) or found in (model.name, backbone and backbone.name):
        return
    field, value = "name", model.name
    if backbone is not None and found in CLASSIFIERS:
        field, value = "backbone", backbone.name
    raise UserError(
        f"model.pretrained = {model.pretrained!r} has weights of {found}, but "
        f"model.{field} = {value!r}: set --model.{field} {found}"
    )


def of_model(trained: ModelConfig, model: ModelConfig) -> bool:
    """Whether weights of `trained` are for the full `model`, not only its backbone."""
    return own.is_own(model.name) or trained.name == model.name


def from_weights(data: DataConfig, kind: str | None = None) -> list[str]:
    """Names of the `data` fields that default to values of pretrained weights.

    Args:
      data: Config section of the data.
      kind: `resizing` selects only the fields that control resizing; None selects all.
    """
    found = with_metadata(type(data), "from_weights")
    return [name for name, of in found.items() if kind in (None, of)]


def _resizing(about: Description, config: Config) -> dict[str, Any]:
    """Interpolation and crop options of pretrained weights, by `data` field.

    Crop options are omitted if the weights are for the backbone only.
    """
    found: dict[str, Any] = {"interpolation": about.interpolation}
    if not of_model(about.model, config.model):
        return found
    if about.crop_mode != config_lib.CROP_MODE:
        found["crop_mode"] = about.crop_mode
    if (config.data.crop_mode or about.crop_mode) == config_lib.CROP_MODE:
        found["crop_pct"] = about.crop_pct
    return found


def _saved_config(workdir: Path) -> Config | None:
    """Config of a workdir, as read by process 0; None without checkpoints."""
    text, folder = None, workdir / CHECKPOINTS
    try:
        if any(step.name.isdigit() for step in folder.iterdir()):
            text = read_text(workdir / config_lib.CONFIG)
    except (OSError, UnicodeDecodeError):
        pass  # Errors are reported when the workdir is opened.
    text = cluster.current().gather(text)[0]
    try:
        return None if text is None else config_lib.from_json(text)
    except UserError:
        return None


def _fill_unset(section: Any, values: dict[str, Any]) -> Any:
    unset = {k: v for k, v in values.items() if getattr(section, k) in (None, {})}
    return dataclasses.replace(section, **unset)


def _with_options(
    model: ModelConfig, trained: ModelConfig, options: Mapping[str, Any]
) -> ModelConfig:
    """Fill in unset options from `options`, and unset `channels` from `trained`.

    Raises:
      ProblemsError: One of the options does not exist in the model.
    """
    given = model.set_options()
    unset = {n: x for n, x in options.items() if n not in given}
    channels = model.channels or trained.channels
    return dataclasses.replace(model.updated(unset), channels=channels)


def options_of(model: ModelConfig) -> dict[str, Any]:
    """Model options that are set and not training-only, keyed by name."""
    in_training = with_metadata(model, "in_training")
    options = model.set_options().items()
    return {name: x for name, x in options if name not in in_training}


def open_weights(model: ModelConfig) -> Weights:
    """Load the weights of `model.pretrained`, which must be equal in all processes.

    Raises:
      UserError: The weights are missing, or do not match `model.pretrained_digest`.
    """
    assert model.pretrained is not None
    backbone = backbone_config(model)
    models = (model,) if backbone is None else (model, backbone)
    return weights_lib.load_named(
        model.pretrained, "model.pretrained", model.pretrained_digest, models
    )


def resolve_statistics(
    config: Config, trained: Weights | None, channels: int
) -> Config:
    """Resolve `data.mean` and `data.std` for images with `channels` channels."""
    if trained is None or config.data.mean is not None:
        return config
    from jaxtrain.weights.channels import statistics

    mean, std = statistics(trained.about.mean, trained.about.std, channels)
    data = dataclasses.replace(config.data, mean=mean, std=std)
    return dataclasses.replace(config, data=data)


def resolve_options(config: Config, found: Mapping[str, Any]) -> Config:
    """Set the task options that were inferred from the training targets."""
    return dataclasses.replace(config, task=config.task.updated(found))
