"""Ensembles of trained models: the prediction is the mean over the members.

Deep ensembles: Lakshminarayanan et al. 2017, arXiv:1612.01474.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import fit_arrays


@dataclass(frozen=True, eq=False)
class Ensemble(TrainedModel):
    """Several trained models of one architecture, used as a single model.

    `params` and `model_state` are dicts of pytrees, one per member, with keys "0", "1"
    and so on.
    """

    @functools.cached_property
    def outputs(self) -> Any:
        """Output shapes of one member, which are also the shapes of the mean."""
        forward = super().forward
        return self.shapes(lambda *arguments: self._each(forward, *arguments)[0])

    def forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        return self._mean(super().forward, params, model_state, images)

    def portable_forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        return self._mean(super().portable_forward, params, model_state, images)

    def folded_forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        return self._mean(super().folded_forward, params, model_state, images)

    def features_of(
        self, params: Any, model_state: Any, images: jax.Array
    ) -> jax.Array:
        """Return the concatenated features of all members: (B, members * features)."""
        each = self._each(super().features_of, params, model_state, images)
        return jnp.concatenate(each, -1)

    def _each(self, function: Callable[..., Any], params: Any, *rest: Any) -> list[Any]:
        model_state, images = rest
        names = _names(self.description)
        return [function(params[n], model_state[n], images) for n in names]

    def _mean(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # Equivalent to `jnp.stack`, but uses only operations that ONNX supports.
        stacked = jax.tree.map(
            lambda *outputs: jnp.concatenate([x[None] for x in outputs]),
            *self._each(function, *arguments),
        )
        return self.decoder.mean_outputs(stacked)


def join(models: Sequence[TrainedModel]) -> Ensemble:
    """Create an ensemble from models that differ only in their weights."""
    about = dataclasses.replace(models[0].description, members=len(models), chosen={})
    step = max(model.origin["step"] for model in models)
    return _ensemble(about, models, {"step": step, "run": None})


def make(
    about: Description,
    params: Any,
    model_state: Any,
    origin: dict[str, Any],
    where: str,
) -> TrainedModel:
    """Create a model, or an ensemble if `about.members` exceeds 1.

    The arguments are described in `make_model`.

    Raises:
      UserError: The weights do not fit the description.
    """
    if about.members == 1:
        return make_model(about, params, model_state, origin, where)
    return Ensemble(about, *fit_arrays(about, params, model_state, where), origin)


def _ensemble(
    about: Description, models: Sequence[TrainedModel], origin: dict[str, Any]
) -> Ensemble:
    params, model_state = (
        {n: getattr(x, name) for n, x in zip(_names(about), models, strict=True)}
        for name in ("params", "model_state")
    )
    return Ensemble(about, params, model_state, origin)


def _names(about: Description) -> list[str]:
    return [str(number) for number in range(about.members)]
