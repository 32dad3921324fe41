"""Blueprints, which specify models by config, dtypes, and input and output shapes."""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jmp
from flax import nnx

from jaxtrain import own
from jaxtrain.config import MAX_COUNT, ModelConfig
from jaxtrain.config.model import MODELS as MODEL_PARTS
from jaxtrain.config.part import CustomConfig, make_part, part_class
from jaxtrain.errors import UserError
from jaxtrain.models import MODELS, defaults
from jaxtrain.models.base import Model
from jaxtrain.models.centres import CENTRES, ClassCentres, add_cosines
from jaxtrain.models.flax_norm import watch_norms
from jaxtrain.models.layers import Layers
from jaxtrain.models.projection import (
    PROJECTION,
    Projection,
    ProjectionHead,
    add_projection,
)
from jaxtrain.models.streams import CountedStream, use_keys_of_pieces
from jaxtrain.plugin import Table, resolve
from jaxtrain.registry import call_own, find_row

# Maximum nesting depth of an output spec.
MAX_DEPTH = 8
# Function that maps a number of images to the shape and dtype of the model's input.
ImagesOf = Callable[[int], jax.ShapeDtypeStruct]
# Field of the config section `model` -> function (built model, value of the field,
# `ImagesOf`) that returns the model to train.
MODEL_CHANGES: Table[Callable[[Model, Any, ImagesOf], Model]] = Table(
    "model_changes", {}
)


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """Specification of a model, without its initial weights.

    Attributes:
      config: Name and options of the model; options that are None have the model's
        defaults.
      policy: Dtypes of parameters, activations and outputs.
      image_shape: Height, width and channels of the input.
      num_outputs: Number of output features of the last layer.
      output_spec: Output shape for one image, or tree of shapes, for constructors with
        the argument `output_spec`. None means (num_outputs,).
      norm_groups: Number of batch-norm groups of a training batch.
      num_centres: Number of learned class centres on top of the outputs
        (`jaxtrain.models.centres`). 0 means no class centres.
      projection: Projection head on top of the outputs (`jaxtrain.models.projection`).
        None means no projection head.
    """

    config: ModelConfig
    policy: jmp.Policy
    image_shape: tuple[int, int, int]
    num_outputs: int
    output_spec: Any = None
    norm_groups: int = 1
    num_centres: int = 0
    projection: Projection | None = None

    def images(self, num: int) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the model's input for `num` images."""
        return jax.ShapeDtypeStruct((num, *self.image_shape), self.policy.compute_dtype)

    @property
    def model_class(self) -> type[Model]:
        """Class of the model that the config names."""
        return _model_class(self.config.name)

    @property
    def backbone(self) -> "Blueprint | None":
        """Blueprint of the backbone classifier; None for a model without a backbone."""
        config = backbone_config(self.config)
        if config is None:
            return None
        return dataclasses.replace(
            self, config=config, output_spec=None, num_centres=0, projection=None
        )

    def build(self, rngs: nnx.Rngs) -> Model:
        """Build the model; weights are initialized from the stream `params` of `rngs`.

        Raises:
          UserError: The model is unknown, an option has no effect, the image shape or
            the quantization is unsupported, the custom transform fails, or a plug-in is
            missing.
        """
        name, model = self.config.name, self.model_class
        options = _options(self.config, model)
        _check_image_shape(self.image_shape, name, model.min_size)
        layers = Layers(policy=self.policy, rngs=rngs, norm_groups=self.norm_groups)
        if "output_spec" in inspect.signature(model.constructor()).parameters:
            options["output_spec"] = self._spec()
        shape = self.image_shape
        # Flax must not shard annotated parameters here; `Layout` shards them later.
        with nnx.use_eager_sharding(False):
            made = model.create(shape, self.num_outputs, layers=layers, **options)
        if self.num_centres:
            centres = ClassCentres(self.num_outputs, self.num_centres, layers=layers)
            made.add_piece(add_cosines, **{CENTRES: centres})
        if self.projection is not None:
            head = ProjectionHead(self.num_outputs, self.projection, layers=layers)
            made.add_piece(add_projection, **{PROJECTION: head})
        _check_attributes(made)
        use_keys_of_pieces(made)
        watch_norms(made)
        _check_image_shape(self.image_shape, name, made.min_size)
        made = self._changed(made, "channels")
        made = _transformed(made, self.config.transform)
        return self._changed(made, "quantize")

    def _changed(self, model: Model, field: str) -> Model:
        value = getattr(self.config, field)
        if not value:
            return model
        if field not in MODEL_CHANGES:
            raise UserError(
                f"model.{field}: the plug-in that implements this field is not "
                "installed; install it, or train a model without the field"
            )
        return MODEL_CHANGES[field](model, value, self.images)

    def _spec(self) -> Any:
        if self.output_spec is None:
            return (self.num_outputs,)
        spec = plain_spec(self.output_spec)
        if spec is None:
            raise UserError(
                f"model.name = {self.config.name!r} takes output_spec, but the task's "
                f"output_spec is {self.output_spec!r}; expected a shape, or dicts and "
                "tuples of shapes"
            )
        return spec

    def abstract(self) -> Model:
        """Build an abstract model, with shapes and dtypes instead of arrays."""
        return nnx.eval_shape(lambda: self.build(initial_rngs(jax.random.key(0))))


def backbone_config(config: ModelConfig) -> ModelConfig | None:
    """Config of a model's backbone; None for models without a backbone.

    Raises:
      UserError: The name of a model is unknown.
    """
    model = _model_class(config.name)
    if model.backbone_options is None:
        return None
    given = config.set_options()
    known = defaults(model) | given
    name = known["backbone"]
    allowed = set(part_class(MODEL_PARTS, name).option_names())
    options = {n: known[n] for n in model.backbone_options if n in known}
    # Skip options that the backbone does not have; `build` raises UserError for them.
    options = {n: x for n, x in options.items() if x is not None and n in allowed}
    return make_part(MODEL_PARTS, name, options)


def _model_class(name: str) -> type[Model]:
    model: Any = find_row(MODELS, "model.name", name)
    if inspect.isclass(model) and issubclass(model, Model):
        return model
    if not callable(model):
        raise UserError(
            f"model.name = {name!r} is {model!r}; expected a Flax module class, or a "
            "function that returns a Flax module; see docs/extending.md"
        )
    return resolve("jaxtrain.models.flax_module:model_class")(model)


def plain_spec(spec: Any, depth: int = MAX_DEPTH) -> Any:
    """Validate an output spec, and convert its lists to tuples.

    Args:
      spec: Output spec of a task, which may have been parsed from JSON.
      depth: Maximum nesting depth.

    Returns:
      Shape, or dicts and tuples of shapes; None if `spec` is not an output spec.
    """
    if isinstance(spec, dict) and depth:
        named = {str(name): plain_spec(one, depth - 1) for name, one in spec.items()}
        return None if None in named.values() else named
    if isinstance(spec, list | tuple) and depth:
        if all(type(size) is int and 0 < size <= MAX_COUNT for size in spec):
            return tuple(spec)
        parts = tuple(plain_spec(one, depth - 1) for one in spec)
        return None if None in parts else parts
    return None


def _options(config: ModelConfig, model: type[Model]) -> dict[str, object]:
    given = config.set_options()
    if isinstance(config, CustomConfig):
        known = defaults(model)
        for option in given:
            if option not in known:
                raise UserError(
                    f"model.options: {config.name} has no option {option!r}; "
                    f"the options are: {', '.join(known) or 'none'}"
                )
    return given


def _check_attributes(model: Model) -> None:
    """Raise UserError if a layer shadows an attribute of models, such as `train`."""
    for name, layer in vars(model).items():
        if isinstance(layer, nnx.Module) and hasattr(type(model), name):
            raise UserError(
                f"model {type(model).__name__}: the layer {name!r} shadows an "
                "attribute of every model; rename the layer in add_piece"
            )


def _check_image_shape(image_shape: tuple[int, int, int], name: str, size: int) -> None:
    if len(image_shape) != 3 or min(image_shape) < 1 or min(image_shape[:2]) < size:
        raise UserError(
            f"image shape {image_shape}: {name} requires (height, width, channels) "
            f"of at least {size}x{size} pixels; set data.image_size or another "
            "model.name"
        )


def _transformed(model: Model, name: str | None) -> Model:
    """Apply the function `model.transform`, for example a quantizer, to a model."""
    if name is None:
        return model
    field = "model.transform"
    made: Any = call_own(field, name, own.load(field, name), model)
    if not isinstance(made, Model):
        raise UserError(
            f"{field} = {name!r} returned {type(made).__name__}, expected the model "
            "or another jaxtrain.models.base.Model; see docs/extending.md"
        )
    use_keys_of_pieces(made)
    watch_norms(made)
    layers = {layer for piece in made.pieces for layer in piece.names}
    arrays = {str(path[0]) for path, _ in nnx.to_flat_state(nnx.state(made))}
    if arrays - layers:
        raise UserError(
            f"{field} = {name!r} added arrays that belong to no piece of the model: "
            f"{', '.join(sorted(arrays - layers))}; add arrays only to layers of pieces"
        )
    return made


def initial_rngs(key: jax.Array) -> nnx.Rngs:
    """Create RNG streams with the same keys as `nnx.Rngs(key, params=key)`."""
    rngs: Any = nnx.Rngs()
    # Dropout requests the stream `dropout`, for which `nnx.Rngs` falls back to
    # `default`.
    rngs.params, rngs.default = (
        CountedStream(key, tag=t) for t in ("params", "default")
    )
    return rngs
