"""Examples and batches: names, shapes and dtypes of their arrays.

A batch is a dict of arrays (batch, ...):

- `image`: stored image, or a canvas that contains a crop window, uint8 (height, width,
  channels); or another input, such as an audio clip, int16 (samples, 1, 1). After
  preprocessing: normalized image in the compute dtype.
- `target`: target of each example, any pytree.
- `box`: left, top, right and bottom of the window on its canvas, float32 (4,).
- `index`: index of the example in its split, int32.
- `repeat`: occurrence number of the example within the batch, from 0, int32.
- `epoch`: epoch of the step, int32; only for alternating flips.
- `mask`: 0 for padding, else 1, int32; only in evaluation.

A batch does not contain the size of the preprocessed images: each program is compiled
for a fixed size (`Phase.image_size`).
"""

from collections.abc import Callable
from typing import Any

import jax

# Key of the crop boxes in canvases (see `jaxtrain.data.canvas`). The boxes start in the
# upper left pixel, so left and top are less than 1.
BOX = "box"

Batch = dict[str, Any]
# Function (data on the device, batch, root key, step) -> batch, with images normalized
# for the model.
Preprocess = Callable[[Any, Batch, jax.Array, jax.Array], Batch]
