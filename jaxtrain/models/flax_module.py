"""Conversion of plain Flax modules (NNX or Linen) to models."""

import functools
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen, nnx

from jaxtrain import own
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model, Piece
from jaxtrain.models.call_mode import evaluated_class, keywords_of, mode
from jaxtrain.models.last_inputs import find_head, record_linears, recording
from jaxtrain.models.layer_paths import layer_paths
from jaxtrain.models.layers import Layers
from jaxtrain.models.linen_module import apply_linen, from_linen
from jaxtrain.models.remat import Segment
from jaxtrain.models.streams import CountedStream, drawing_from

# Attributes of `FlaxModel` that a user's module must not define; the others, such as
# `stride`, are allowed.
RESERVED = frozenset(
    {"pieces", "make_part", "add_piece", "backbone_layers", "backbone_options"}
) | {
    "variant",
    "min_size",
    "kernels_from_images",
    "evaluate_layers",
    "example_shape",
    "frozen_layers",
}


class FlaxModel(Model):
    """Model with a single piece, which applies a user's Flax module.

    An instance is also an instance of the module's class, so that parameter paths are
    unchanged. `model_class` creates a subclass per module.

    Attributes:
      module: Constructor of the module, a class or a function.
      keywords: Parameter names of the module's `__call__`.
      deterministic: Whether the module is in evaluation mode.
      bare: Whether the model returns features (the input of the linear layer that is
        called last) instead of outputs.
      example_shape: Height, width and channels of input images, given to `create`.
      frozen_layers: Paths of frozen layers of a Linen module.
    """

    module: ClassVar[Callable[..., Any]]
    has_pieces = False
    keywords: ClassVar[frozenset[str]] = frozenset()
    deterministic: bool = False
    bare: bool = False
    example_shape: tuple[int, int, int] = (1, 1, 1)
    frozen_layers: frozenset[str] = frozenset()

    @classmethod
    def constructor(cls) -> Callable[..., Any]:
        # The signature of an NNX module class is (*args, **kwargs), so return
        # `__init__`, whose signature names the options.
        return cls.module.__init__ if inspect.isclass(cls.module) else cls.module

    @classmethod
    def create(
        cls,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        **options: Any,
    ) -> "FlaxModel":
        """Build the module with `options` and the standard arguments that it accepts.

        Raises:
          UserError: The constructor requires other arguments, fails, or does not return
            a Flax module.
        """
        channels, policy = image_shape[-1], layers.policy
        known = {
            "num_outputs": num_outputs,
            "num_classes": num_outputs,
            "image_shape": image_shape,
            "in_channels": channels,
            "in_features": channels,
            "rngs": layers.rngs,
            "dtype": policy.compute_dtype,
            "param_dtype": policy.param_dtype,
        }
        name = getattr(cls.module, "__name__", "module")
        parameters = inspect.signature(cls.constructor()).parameters
        given = {n: x for n, x in known.items() if n in parameters} | options
        missing = [
            n
            for n, p in parameters.items()
            if n not in given
            and n != "self"
            and p.default is p.empty
            and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if missing:
            raise UserError(
                f"model {name}: the constructor requires {', '.join(missing)}; add a "
                f"default, or set a value in model.options (only {', '.join(known)} "
                "are passed automatically)"
            )
        try:
            made: Any = cls.module(**given)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"model {name}: the constructor failed: {own.describe_error(error)}; "
                f"arguments: {', '.join(given) or 'none'}"
            ) from error
        if isinstance(made, linen.Module):
            if "dtype" not in given and policy.compute_dtype != policy.param_dtype:
                raise UserError(
                    f"model {name}: the precision requires the compute dtype "
                    f"{jnp.dtype(policy.compute_dtype)}, but the Linen module has no "
                    "`dtype` field; add the field and pass it to the layers, or set "
                    "precision to fp32"
                )
            _check_callable(made)
            made = from_linen(made, image_shape, layers)
        if not isinstance(made, nnx.Module):
            raise UserError(
                f"model {name} returned {type(made).__name__}; return an nnx.Module or "
                "a Linen module (docs/extending.md)"
            )
        model = _as_model(made, layers)
        model.example_shape = image_shape
        return model

    @property
    def backbone_layers(self) -> tuple[str, ...]:
        """Paths of all layers except the head and the modules that contain it.

        Raises:
          UserError: The head cannot be identified (`find_head`).
        """
        head = find_head(self).split("/")
        around = {"/".join(head[: n + 1]) for n in range(len(head))}
        return tuple(path for path in layer_paths(self) if path not in around)

    def evaluate_layers(self, layers: frozenset[str]) -> None:
        if isinstance(self, nnx.bridge.ToNNX):
            self.frozen_layers = layers
            return
        super().evaluate_layers(layers)
        for path, layer in nnx.iter_modules(self):
            if "/".join(map(str, path)) in layers:
                object.__setattr__(layer, "__class__", evaluated_class(type(layer)))

    def drop_head(self) -> bool:
        self.bare = isinstance(self, nnx.bridge.ToNNX) or record_linears(self)
        return self.bare

    def make_part(self, index: int, piece: Piece) -> Segment:
        if index:
            return super().make_part(index, piece)
        return Segment(piece.names, partial(_apply, self))


@functools.cache
def model_class(module: Callable[..., Any]) -> type[Model]:
    """Create a subclass of `FlaxModel` for a constructor of Flax modules."""
    name = getattr(module, "__name__", type(module).__name__)
    kind: Any = type(FlaxModel)
    return kind(name, (FlaxModel,), {"module": staticmethod(module)})


@functools.cache
def _joined_class(kind: type[nnx.Module]) -> type[FlaxModel]:
    """Create a subclass of a module's class and of `FlaxModel`."""
    hidden = sorted(
        name
        for base in kind.__mro__[: kind.__mro__.index(nnx.Module)]
        for name in vars(base)
        if name in RESERVED
    )
    if hidden:
        raise UserError(
            f"model {kind.__name__}: the class defines {', '.join(hidden)}, which "
            "jaxtrain reserves; rename the attribute"
        )
    attributes = {"__call__": Model.__call__, "keywords": keywords_of(kind)}
    metaclass: Any = type(kind)
    return metaclass(kind.__name__, (kind, FlaxModel), attributes)


def _as_model(module: Any, layers: Layers) -> FlaxModel:
    """Convert a Flax module to a model with a single piece, in place."""
    _check_callable(module)
    kind = _joined_class(type(module))
    hidden = sorted(RESERVED & vars(module).keys())
    if hidden:
        raise UserError(
            f"model {kind.__name__}: the module defines {', '.join(hidden)}, which "
            "jaxtrain reserves; rename the attribute"
        )
    _use_dtypes(module, layers)
    paths = [path for path, _ in nnx.to_flat_state(nnx.state(module))]
    names = tuple(dict.fromkeys(str(path[0]) for path in paths))
    object.__setattr__(module, "__class__", kind)
    module.pieces = (Piece(names, _never),)
    module.deterministic = False
    return module


def _use_dtypes(module: Any, layers: Layers) -> None:
    """Fill in compute dtypes of layers, and cast the state to the policy's dtypes."""
    policy = layers.policy
    for _, layer in nnx.iter_modules(module):
        if vars(layer).get("dtype", ...) is None:
            setattr(layer, "dtype", policy.compute_dtype)  # noqa: B010
    wide = jnp.promote_types(policy.param_dtype, jnp.float32)
    for _, node in nnx.iter_graph(module):
        if isinstance(node, nnx.Variable):
            value = node.get_value()
            dtype = policy.param_dtype if isinstance(node, nnx.Param) else wide
            kind = getattr(value, "dtype", jnp.int32)
            if jnp.issubdtype(kind, jnp.floating):
                node.set_value(value.astype(dtype))


def _check_callable(module: Any) -> None:
    if not callable(module):
        raise UserError(
            f"model {type(module).__name__} has no forward pass; define __call__(x)"
        )


def _never(*arguments: Any) -> Any:
    raise AssertionError("the piece of a plain Flax module is not applied by itself")


def _apply(
    model: FlaxModel, layers: Mapping[str, Any], x: Any, key: jax.Array | None
) -> Any:
    """Apply a model after replacing its layers by `layers`, such as traced copies."""
    if any(vars(model)[name] is not layer for name, layer in layers.items()):
        other = object.__new__(type(model))
        vars(other).update({**vars(model), **layers})
        model = other
    rngs = None if key is None else _streams(jax.random.fold_in(key, 0))
    if not model.bare:
        return _forward(model, x, rngs)
    with recording() as calls:
        _forward(model, x, rngs)
    if not calls:
        raise UserError(
            f"model {type(model).__name__} has no features, as it calls no "
            "nnx.Linear or nn.Dense; end the model with one of these layers"
        )
    return calls[-1].inputs


def _forward(model: FlaxModel, x: Any, rngs: nnx.Rngs | None) -> Any:
    training = not model.deterministic
    if isinstance(model, nnx.bridge.ToNNX):
        frozen = model.frozen_layers
        return apply_linen(model, x, rngs, training=training, frozen=frozen)
    options = {"rngs": rngs} if "rngs" in model.keywords else {}
    call = next(k for k in type(model).__mro__[1:] if "__call__" in vars(k)).__call__
    with drawing_from(rngs):
        y = call(model, x, **options, **mode(model.keywords, training=training))
    nnx.pop(model, nnx.Intermediate)
    return y


def _streams(key: jax.Array) -> nnx.Rngs:
    """Create RNG streams with a common counter, usable within Flax transforms."""
    rngs: Any = nnx.Rngs()
    rngs.dropout = rngs.default = CountedStream(key, tag="dropout")
    return rngs
