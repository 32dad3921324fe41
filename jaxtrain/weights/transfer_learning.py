"""Transfer of weights to a model with other outputs, channels or layers."""

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError, counted
from jaxtrain.models.blueprint import Blueprint, initial_rngs
from jaxtrain.tasks.outputs import is_shape
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path, path_name
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import Transfer, Weights, path_in_weights, shapes_of


def transfer(
    weights: Weights, blueprint: Blueprint, seed: int = 0
) -> tuple[tuple[Any, Any], Transfer]:
    """Initialize a model with trained weights.

    Args:
      weights: Weights from `load`.
      blueprint: Blueprint of the model; `weights.about.blueprint()` is the blueprint
        of the trained model.
      seed: Seed to initialize the arrays that the weights lack.

    Returns:
      Parameters and other state of the model, and the plan that was applied.

    Raises:
      UserError: The weights do not match the model, or are damaged.
    """
    report = compare(weights, blueprint)

    def build() -> Any:
        return split_model(blueprint.build(initial_rngs(jax.random.key(seed))))[1:]

    def new() -> dict[str, jax.Array]:
        return {
            p: x
            for p, x in by_path(build()).items()
            if path_in_weights(p) in report.kept
        }

    # Initialize only arrays that the weights do not replace.
    initial = jax.jit(new)()
    values = jax.tree_util.tree_map_with_path(
        lambda path, x: initial.get(path_name(path), x), jax.eval_shape(build)
    )

    def put(array: np.ndarray, x: Any) -> jax.Array:
        return jnp.array(np.broadcast_to(array, x.shape), x.dtype)

    return report.fill(values, put), report


def compare(
    weights: Weights,
    blueprint: Blueprint,
    values: Any = None,
    *,
    class_names: tuple[str, ...] | None = None,
    column_names: tuple[str, ...] | None = None,
    inferred: Mapping[str, Any] | None = None,
) -> Transfer:
    """Compare trained weights with a model, without reading the arrays.

    Args:
      weights: Trained weights, from `load`.
      blueprint: Model to initialize.
      values: Abstract parameters and other state of the model. Defaults to the
        blueprint's.
      class_names: Class names of the model, if any.
      column_names: Names of the numbers that the model predicts, if any.
      inferred: Task options inferred from the training targets.

    Raises:
      UserError: The weights do not match the model.
    """
    about, config = weights.about, blueprint.config
    named = weights.where
    if config.pretrained is not None:
        named = f"model.pretrained = {config.pretrained!r}"
    about.check_is_one(named)
    model_shapes = _shapes(blueprint) if values is None else shapes_of(values)
    blueprint, added = _without_changes(blueprint, about, named)
    backbone, backbone_layers = blueprint.backbone, None
    if backbone is not None and about.model.name == backbone.config.name:
        backbone_layers = blueprint.abstract().backbone_layers
    as_trained = _as_trained(blueprint, about, backbone_layers is not None)
    shapes = _shapes(as_trained)
    differences = weights.differences(shapes)
    if differences:
        raise UserError(
            f"{named} does not fit model.name = {config.name!r}: {differences}; give "
            f"the model and the options used in training, {_shown(about.model)}"
        )
    behind = _outside(model_shapes.keys() - added, backbone_layers)
    # Include arrays that the weights lack, such as class centres.
    behind |= model_shapes.keys() - added - shapes.keys()
    # Remove the axis of batch-norm groups.
    model_shapes = {
        p: model_shapes[p][len(model_shapes[p]) - len(x) :]
        for p, x in shapes.items()
        if p in model_shapes
    }
    model_shapes = {p: x for p, x in model_shapes.items() if p not in behind}
    # Kernels (rows, columns, in, out) with another number of input channels.
    first = {
        p
        for p in model_shapes
        if len(model_shapes[p]) == 4 and model_shapes[p][2] != shapes[p][2]
    }
    heads = {p for p in model_shapes if weights.has_no_head(p)}
    classes = {p for p in model_shapes if model_shapes[p] != shapes[p]} - first - heads
    renamed = _names_differ(
        class_names or column_names, about.class_names or about.column_names
    )
    # Options inferred from the targets, such as mean and std, set the output scale.
    given = (inferred or {}).items()
    rescaled = [name for name, x in given if about.task_options.get(name) != x]
    if not classes and (renamed or rescaled):
        larger = _shapes(_with_more_features(as_trained))
        classes = {p for p in model_shapes if shapes[p] != larger[p]} - heads
    why = f"had {about.num_outputs} outputs"
    if about.num_outputs == blueprint.num_outputs and renamed:
        why += f" of other {'classes' if class_names else 'columns'}"
    elif about.num_outputs == blueprint.num_outputs and rescaled:
        why += f" of another {' and '.join(rescaled)}"
    changed = config.transform or f"model.quantize = {config.quantize!r}"
    channels = counted(about.image_shape[2], "channel"), blueprint.image_shape[2]
    rows = {
        "new": (f"the last layer, which {why}: %s", classes),
        "new heads": ("not in the weights: %s", heads),
        "new layers": ("after the backbone: %s", behind),
        "new state": (f"of {changed}: %s", added),
        "converted": (f"%s, from {channels[0]} to {channels[1]}", first),
    }
    return Transfer(
        weights,
        frozenset(classes | heads | behind | added),
        frozenset(first),
        {n: text.replace("%s", _layers(x)) for n, (text, x) in rows.items() if x},
    )


def _as_trained(
    blueprint: Blueprint, about: Description, of_backbone: bool
) -> Blueprint:
    """Adapt the blueprint, or its backbone, to the weights' channels and outputs."""
    size, backbone = blueprint.image_shape[:2], blueprint.backbone
    if of_backbone and backbone is not None:
        # Take both options from the weights: as a part of a larger model, the backbone
        # has no auxiliary heads, and has the channels of the larger model.
        names = "aux_weight", "channels"
        theirs = {x: getattr(about.model, x) for x in names if hasattr(about.model, x)}
        blueprint = replace(backbone, config=replace(backbone.config, **theirs))
        size = about.image_shape[:2]
    return replace(
        blueprint,
        image_shape=(*size, about.image_shape[2]),
        num_outputs=about.num_outputs,
        output_spec=about.output_spec,
        norm_groups=1,
        num_centres=about.num_centres,
        projection=about.projection,
    )


def _without_changes(
    blueprint: Blueprint, about: Description, named: str
) -> tuple[Blueprint, set[str]]:
    """Return the blueprint without new transforms, and the array paths they add.

    Raises:
      UserError: A new transform changes existing arrays.
    """
    config = blueprint.config
    changes = ("transform", "quantize")
    new = [
        c for c in changes if getattr(config, c) not in (None, getattr(about.model, c))
    ]
    if not new:
        return blueprint, set()
    plain = replace(blueprint, config=replace(config, **dict.fromkeys(new)))
    before, after = _shapes(plain), _shapes(blueprint)
    changed = sorted(path for path in before if after.get(path) != before[path])
    if changed:
        raise UserError(
            f"model.transform = {config.transform!r} with {named}: the transform "
            f"changes the paths or shapes of arrays, such as {changed[0]}, so these "
            "weights do not fit; use a transform that keeps paths and "
            "shapes, or start from weights trained with the same model.transform"
        )
    return plain, after.keys() - before.keys()


def _with_more_features(blueprint: Blueprint) -> Blueprint:
    """Increase each output size by 1, to identify the arrays of the last layer."""

    def more(spec: Any) -> Any:  # `jax.tree.map` would change the order of dict keys.
        if isinstance(spec, dict):
            return {name: more(one) for name, one in spec.items()}
        if is_shape(spec):
            return (*spec[:-1], spec[-1] + 1) if spec else spec
        return tuple(map(more, spec))

    spec = blueprint.output_spec
    shapes = [()] if spec is None else jax.tree.leaves(spec, is_leaf=is_shape)
    return replace(
        blueprint,
        num_outputs=blueprint.num_outputs + len(shapes),
        output_spec=None if spec is None else more(spec),
    )


def _outside(paths: Set[str], layers: tuple[str, ...] | None) -> set[str]:
    """Return the paths of arrays outside of `layers`; none if `layers` is None."""
    if layers is None:
        return set()
    return {path for path in paths if path.partition("/")[0] not in layers}


def _shapes(blueprint: Blueprint) -> dict[str, tuple[int, ...]]:
    return shapes_of(split_model(blueprint.abstract())[1:])


def _names_differ(
    names: tuple[str, ...] | None, trained: tuple[str, ...] | None
) -> bool:
    """Whether class or column names differ; missing or numbered names are ignored."""
    if names is None or trained is None or names == trained:
        return False
    return tuple(map(str, range(len(names)))) not in (names, trained)


def _layers(paths: set[str]) -> str:
    return ", ".join(sorted({path.rpartition("/")[0] for path in paths}))


def _shown(config: ModelConfig) -> str:
    values = {k: v for k, v in vars(config).items() if v not in (None, {})}
    return ", ".join(f"model.{k} = {v!r}" for k, v in values.items())
