"""Examples and batches: the names, shapes and dtypes of their arrays.

A batch is a dict of arrays (batch, ...):

- `image`: stored, uint8 (height, width, channels), or a canvas with a window on it, or
  another input, such as a clip of sound, int16 (samples, 1, 1);
  prepared, normalised and in the compute dtype, as the model sees it;
- `target`: what the store has for each example, any pytree;
- `box`: left, top, right and bottom of the window on its canvas, float32 (4,);
- `index`: number of the example in its split, int32;
- `repeat`: how often the example came before in the batch, int32;
- `epoch`: that of the step, int32, where a flip alternates;
- `mask`: in evaluations, 0 for padding and else 1, int32.

The size of the prepared images is no part of a batch: each program is made for one
(`Phase.image_size`).
"""

from collections.abc import Callable
from typing import Any

import jax

# Of a batch: left, top, right and bottom of each window in its canvas, float32
# (batch, 4). The left and the top are less than 1.
BOX = "box"

Batch = dict[str, Any]
# (data on the device, batch, root key, step) -> batch with normalised images.
Preprocess = Callable[[Any, Batch, jax.Array, jax.Array], Batch]
