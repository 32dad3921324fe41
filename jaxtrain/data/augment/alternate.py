"""The flip that alternates from epoch to epoch."""

from typing import Any

import jax
import numpy as np

from jaxtrain import keys
from jaxtrain.data.augment.apply import Follow, fold_each
from jaxtrain.data.augment.geometry import Flip


def alternating_flip(
    batch: dict[str, Any], root: jax.Array, follow: Follow
) -> dict[str, Any]:
    """Mirror one half of the examples, and in the next epoch the other half.

    So two epochs in a row show both sides of each example, where independent flips show
    one side twice to every second (Jordan 2024, arXiv:2404.00498, section 3.6).

    Of an example that is several times in a batch every second one is mirrored.

    Args:
      batch: its `epoch`, and `repeat` if it has one, is int32 (B,).
      root: key of the run; which half is first is a function of it and the index.
      follow: how the targets go along.
    """
    each = fold_each(keys.stream(root, keys.EXAMPLE), batch["index"])

    turn = batch["epoch"] + batch.get("repeat", 0)

    def one(
        key: jax.Array, turn: jax.Array, image: jax.Array, target: Any
    ) -> tuple[jax.Array, Any]:
        first = jax.random.bernoulli(key, np.float32(0.5))
        mirrored = first ^ (turn % 2 == 1)
        height, width, _ = image.shape
        flip = Flip(mirrored, (height, width), dim=1)
        return flip.pixels(image), follow(target, flip)

    images, targets = jax.vmap(one)(each, turn, batch["image"], batch["target"])
    return {**batch, "image": images, "target": targets}
