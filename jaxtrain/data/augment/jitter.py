"""Random brightness, contrast, saturation and hue."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import colour

ORDERS = np.array(list(itertools.permutations(range(4))), np.int32)


def colour_jitter(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Change brightness, contrast, saturation and hue, in a random order.

    Factors lie evenly between 1 - x and 1 + x, or 0 and 1 + x; the hue moves evenly by
    up to x of its circle either way (torchvision's ColorJitter).
    """
    del fill
    order_key, factor_key, hue_key = jax.random.split(key, 3)
    order = jnp.asarray(ORDERS)[jax.random.randint(order_key, (), 0, 24, jnp.int32)]
    strengths = np.array(
        [config.brightness, config.contrast, config.saturation], np.float32
    )
    draws = jax.random.uniform(factor_key, (3,), jnp.float32)
    least = np.maximum(0, 1 - strengths)
    factors = least + (1 + strengths - least) * draws
    # A factor of 1 changes nothing; hue is no blend.
    factors = jnp.append(factors, jnp.float32(1))
    hue = jax.random.uniform(hue_key, (), jnp.float32, -config.hue, config.hue)
    shift = (hue * 255).astype(jnp.int32) & 255

    def apply(image: jax.Array, kind: jax.Array) -> tuple[jax.Array, None]:
        dark = jnp.where(kind == 1, colour.mean_grey(image), 0)
        other = jnp.where(kind == 2, colour.to_grey(image), dark)
        changed = colour.blend(other, image, factors[kind])
        if config.hue:
            shifted = colour.shift_hue(image, shift)
            changed = jnp.where(kind == 3, shifted, changed)
        return changed, None

    # A loop, as four copies take four times as long to compile.
    return jax.lax.scan(apply, image, order)[0]
