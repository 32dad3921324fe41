"""The first weights of a run that begins with trained ones."""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

import jax

from jaxtrain import keys
from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError, counted
from jaxtrain.inference.description import Description
from jaxtrain.inference.trained import Trained, ours, shapes_of
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.weights.channels import convert
from jaxtrain.parallel.placed import put_like
from jaxtrain.tasks.outputs import is_shape
from jaxtrain.trainer.fitted import fit_kernels
from jaxtrain.trainer.programs import Programs
from jaxtrain.trainer.settle import open_weights
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.state import split_model
from jaxtrain.trees import path_name


@dataclass(frozen=True)
class Start:
    """How a run begins with trained weights, of which none is read yet.

    Attributes:
      trained: Weights to begin with.
      kept: Paths of arrays that stay what the run itself has made: of the last layer,
        for other classes, or of layers behind a backbone, auxiliary heads and a
        transform that the weights do not have.
      converted: Paths of arrays of first layers, for images of other channels.
      rows: Rows of the start table on both.
    """

    trained: Trained
    kept: frozenset[str]
    converted: frozenset[str]
    rows: dict[str, str]


def plan_start(setup: Setup, trained: Trained | None = None) -> Start | None:
    """Compare trained weights with the model of a run.

    Args:
      trained: Weights to begin with. None means those that its config was settled by;
        without these, None is returned.

    Raises:
      UserError: they do not fit.
    """
    trained = trained or setup.trained
    if trained is None:
        return None
    about, config = trained.about, setup.config.model
    about.check_is_one(f"model.pretrained = {config.pretrained!r}")
    blueprint, added = _without_changes(setup.create.blueprint, about)
    own_layers, backbone = None, blueprint.backbone
    if backbone is not None and about.model.name == backbone.config.name:
        own_layers = blueprint.abstract().backbone_layers
        # The backbone has none of the auxiliary heads that the weights may have, and
        # the channels that the whole model is left with.
        trained_with = replace(
            backbone.config,
            aux_weight=about.model.aux_weight,
            channels=about.model.channels,
        )
        blueprint = replace(backbone, config=trained_with)
    size = (blueprint if own_layers is None else about).image_shape[:2]
    as_trained = replace(
        blueprint,
        image_shape=(*size, about.image_shape[2]),
        num_outputs=about.num_outputs,
        output_spec=about.output_spec,
        norm_groups=1,
        num_centres=about.num_centres,
        projection=about.projection,
    )
    shapes = _shapes(as_trained)
    differences = trained.differences(shapes)
    if differences:
        raise UserError(
            f"model.pretrained = {config.pretrained!r} does not fit model.name = "
            f"{config.name!r}: {differences}; give the model and the options that it "
            f"was trained with, {_shown(about.model)}"
        )
    state = setup.abstract_state
    own = shapes_of((state.params, state.model_state))
    behind = set() if own_layers is None else _outside(own.keys() - added, own_layers)
    # Such as the centres of classes, of weights that were trained without.
    behind |= own.keys() - added - shapes.keys()
    # Without the dim of the groups of batch norm.
    own = {p: own[p][len(own[p]) - len(x) :] for p, x in shapes.items() if p in own}
    own = {p: x for p, x in own.items() if p not in behind}
    # Kernels (rows, columns, in, out) that differ in their input channels.
    first = {p for p in own if len(own[p]) == 4 and own[p][2] != shapes[p][2]}
    heads = {p for p in own if trained.has_no_head(p)}
    classes = {p for p in own if own[p] != shapes[p]} - first - heads
    names = setup.task.class_names or setup.task.column_names
    others = _are_others(names, about.class_names or about.column_names)
    # Outputs are in units of what the task has taken from the training targets.
    settled = setup.task.settled.items()
    rescaled = [name for name, x in settled if about.task_options.get(name) != x]
    if not classes and (others or rescaled):
        larger = _shapes(_with_more_features(as_trained))
        classes = {p for p in own if shapes[p] != larger[p]} - heads
    rows = {}
    if classes:
        why = f"had {about.num_outputs} outputs"
        if others and about.num_outputs == blueprint.num_outputs:
            why += f" of other {'classes' if setup.task.class_names else 'columns'}"
        elif rescaled and about.num_outputs == blueprint.num_outputs:
            why += f" of another {' and '.join(rescaled)}"
        rows["new"] = f"the last layer, which {why}: {_layers(classes)}"
    if heads:
        rows["new heads"] = f"not in the weights: {_layers(heads)}"
    if behind:
        rows["new layers"] = f"behind the backbone: {_layers(behind)}"
    if added:
        of = config.transform or f"model.quantize = {config.quantize!r}"
        rows["new state"] = f"of {of}: {_layers(added)}"
    if first:
        layer = f"{_layers(first)}, made for {counted(about.image_shape[2], 'channel')}"
        rows["converted"] = f"{layer}, for {blueprint.image_shape[2]}"
    kept = frozenset(classes | heads | behind | added)
    return Start(trained, kept, frozenset(first), rows)


def _without_changes(
    blueprint: Blueprint, about: Description
) -> tuple[Blueprint, set[str]]:
    """Return the blueprint of a model as its weights are, and paths that it has beside.

    Raises:
      UserError: a transform that the weights have not seen changes their arrays.
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
            f"model.transform = {config.transform!r} with model.pretrained = "
            f"{config.pretrained!r}: it changes the paths or shapes of arrays, such as "
            f"{changed[0]}, so that weights trained without it do not fit; keep them, "
            "or begin with weights that were trained with it"
        )
    return plain, after.keys() - before.keys()


def first_weights(
    setup: Setup, programs: Programs, start: Start | None
) -> tuple[tuple[Any, Any], str | None]:
    """Return the weights that a run begins with, and what there is to tell of them.

    Args:
      programs: Programs that make new weights.
      start: Trained weights that it begins with; None: those that its config names, if
        it does.

    Raises:
      UserError: `model.pretrained` names no model that fits.
      CheckpointError: It is damaged.
    """
    config = setup.config
    weights = programs.weights(keys.root_key(config.seed))
    if config.model.pretrained is None:
        return fit_kernels(setup, programs, weights), None
    if start is None:
        start = plan_start(setup, open_weights(setup.config.model))
        assert start is not None
    text = f"begins with the weights of {start.trained.where}"
    if "new" in start.rows:
        text += ", but for " + start.rows["new"].partition(":")[0]
    return replace_weights(weights, start), text


def replace_weights(weights: tuple[Any, Any], start: Start) -> tuple[Any, Any]:
    """Put trained weights in the place of the first ones, one array at a time.

    Args:
      weights: Parameters and other state, on the devices, as the run has made them;
        what replaces them lies where they do, in their dtypes.
      start: Trained weights, and which arrays are kept or converted.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(weights)
    stored, found = start.trained.read(), []
    for path, x in paths:
        here = ours(path_name(path))
        if here not in start.kept:
            array = start.trained.take(stored, here)
            if here in start.converted:
                array = convert(array, x.shape[-2])
            x = put_like(array, x)
        found.append(x)
    return tree.unflatten(found)


def _with_more_features(blueprint: Blueprint) -> Blueprint:
    """Return what builds a model whose outputs have a feature more, each of them."""

    def more(spec: Any) -> Any:  # `jax.tree.map` would sort the keys of dicts.
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


def _outside(paths: Set[str], layers: tuple[str, ...]) -> set[str]:
    """Return the paths of arrays that lie in other layers."""
    return {path for path in paths if path.partition("/")[0] not in layers}


def _shapes(blueprint: Blueprint) -> dict[str, tuple[int, ...]]:
    return shapes_of(split_model(blueprint.abstract())[1:])


def _are_others(names: tuple[str, ...] | None, trained: tuple[str, ...] | None) -> bool:
    """Whether the classes are known to differ; unnamed ones never are."""
    if names is None or trained is None or names == trained:
        return False
    return tuple(map(str, range(len(names)))) not in (names, trained)


def _layers(paths: set[str]) -> str:
    return ", ".join(sorted({path.rpartition("/")[0] for path in paths}))


def _shown(config: ModelConfig) -> str:
    values = {k: v for k, v in vars(config).items() if v not in (None, {})}
    return ", ".join(f"model.{k} = {v!r}" for k, v in values.items())
