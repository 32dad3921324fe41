"""Facts of runs, to build decoders from."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.data.fit import Fit
from jaxtrain.tasks.decoder import OutputFacts


def facts_of(
    *shape: int, options: Mapping[str, Any] | None = None, **given: Any
) -> OutputFacts:
    """Return the facts of a run whose outputs for one image have a shape."""
    known: dict[str, Any] = {
        "task": "one",
        "class_names": None,
        "column_names": None,
        "image_shape": (8, 8, 3),
        "chosen": {},
        "fit": Fit(),
    }
    outputs = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    return OutputFacts(options=options or {}, outputs=outputs, **{**known, **given})
