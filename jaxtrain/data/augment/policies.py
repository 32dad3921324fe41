"""Policies of random operations: RandAugment, TrivialAugment and AugMix."""

import jax
import jax.numpy as jnp

from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import operations
from jaxtrain.data.augment.apply import fold_each
from jaxtrain.data.augment.geometry import Affine, Geometry
from jaxtrain.data.augment.mix import draw_beta
from jaxtrain.data.augment.operations import Tables

# AugMix: number of chains; maximum number of operations in a chain; parameter of the
# Dirichlet and the Beta distribution of weights (arXiv:1912.02781, figure 4).
WIDTH, MAX_DEPTH, ALPHA = 3, 3, 1.0


def rand_augment(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Apply RandAugment (arXiv:1909.13719): random operations, fixed magnitude."""
    tables = _rand_tables(*image.shape[:2])

    def apply(image: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        drawn = operations.draw(key, tables, config.randaugment_magnitude)
        return operations.apply(image, drawn, tables), None

    # A scan compiles the operations once, an unrolled loop once per iteration.
    return jax.lax.scan(apply, image, _operation_keys(key, config.randaugment))[0]


def rand_geometry(
    key: jax.Array, shape: tuple[int, int], config: AugmentConfig
) -> Geometry:
    """Return the geometric transform that `rand_augment` applies for the key."""
    tables = _rand_tables(*shape)

    def one(key: jax.Array) -> jax.Array:
        drawn = operations.draw(key, tables, config.randaugment_magnitude)
        return drawn.of(tables.maps)

    return Affine(jax.vmap(one)(_operation_keys(key, config.randaugment)))


def _rand_tables(height: int, width: int) -> Tables:
    magnitudes = operations.rand_levels(height, width)
    return operations.make_tables(magnitudes, height, width)


def _operation_keys(key: jax.Array, number: int) -> jax.Array:
    return fold_each(key, jnp.arange(number, dtype=jnp.int32))


def trivial_augment(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Apply TrivialAugmentWide (arXiv:2103.10158): a random operation and magnitude."""
    tables = _trivial_tables(*image.shape[:2])
    return operations.apply(image, operations.draw(key, tables), tables)


def trivial_geometry(
    key: jax.Array, shape: tuple[int, int], config: AugmentConfig
) -> Geometry:
    """Return the geometric transform that `trivial_augment` applies for the key."""
    tables = _trivial_tables(*shape)
    return Affine(operations.draw(key, tables).of(tables.maps))


def _trivial_tables(height: int, width: int) -> Tables:
    return operations.make_tables(operations.wide_levels(), height, width)


def aug_mix(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Apply AugMix (arXiv:1912.02781): average an image with its augmentations.

    Each augmentation is a chain of random operations. The sum of the chains' weights is
    drawn from Beta(alpha, alpha), and their proportions from Dirichlet(alpha); the
    image has the remaining weight.
    """
    height, columns, _ = image.shape
    magnitudes = operations.mix_levels(height, columns, config.augmix)
    tables = operations.make_tables(magnitudes, height, columns)
    chain_key, weight_key, part_key = jax.random.split(key, 3)

    def chain(key: jax.Array) -> jax.Array:
        return _chain(key, image, tables)

    chains = jax.vmap(chain)(jax.random.split(chain_key, WIDTH))
    weights = _dirichlet(weight_key, ALPHA, WIDTH)
    part = draw_beta(part_key, ALPHA, ALPHA)
    # The sum is in float32 and in this order, as in torchvision.
    mixed = (1 - part) * image.astype(jnp.float32)
    for weight, augmented in zip(weights, chains, strict=True):
        mixed = mixed + part * weight * augmented.astype(jnp.float32)
    return jnp.clip(mixed, 0, 255).astype(image.dtype)


def _chain(key: jax.Array, image: jax.Array, tables: Tables) -> jax.Array:
    depth_key, key = jax.random.split(key)
    depth = jax.random.randint(depth_key, (), 1, MAX_DEPTH + 1, jnp.int32)

    def apply(
        image: jax.Array, step: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, None]:
        number, key = step
        drawn = operations.draw(key, tables)
        after = operations.apply(image, drawn, tables, smooth=True)
        return jnp.where(depth > number, after, image), None

    numbers = jnp.arange(MAX_DEPTH, dtype=jnp.int32)
    return jax.lax.scan(apply, image, (numbers, fold_each(key, numbers)))[0]


def _dirichlet(key: jax.Array, alpha: float, size: int) -> list[jax.Array]:
    """Draw from a Dirichlet distribution by stick-breaking (Sethuraman 1994)."""
    left, parts = jnp.float32(1), []
    for number in range(size - 1):
        each = jax.random.fold_in(key, number)
        part = left * draw_beta(each, alpha, alpha * (size - 1 - number))
        parts.append(part)
        left = left - part
    return [*parts, left]
