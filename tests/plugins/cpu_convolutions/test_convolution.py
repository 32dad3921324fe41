"""The convolutions for CPUs against those of `lax`, in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from jax import lax

from jaxtrain.plugins.cpu_convolutions.convolution import conv_general_dilated

NHWC = ("NHWC", "HWIO", "NHWC")
Pads = tuple[tuple[int, int], tuple[int, int]] | str


def passes(function: Any, x: Any, kernel: Any, dy: Any, *args: Any) -> Any:
    """Return the output, and the gradients of input and kernel."""
    strides, pads, dilation, groups = args

    def convolve(x: Any, kernel: Any) -> Any:
        return function(
            x,
            kernel,
            strides,
            pads,
            rhs_dilation=(dilation, dilation),
            dimension_numbers=NHWC,
            feature_group_count=groups,
        )

    y, backward = jax.vjp(convolve, x, kernel)
    return y, *backward(dy(y.shape))


def compare(
    images: tuple[int, ...],
    kernel: tuple[int, int],
    features: int,
    strides: tuple[int, int],
    pads: Pads,
    dilation: int = 1,
    groups: int = 1,
    dtype: Any = np.float64,
    tolerance: float = 1e-12,
) -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64():
        x = jnp.asarray(rng.normal(size=images), dtype)
        shape = (*kernel, images[-1] // groups, features)
        w = jnp.asarray(rng.normal(size=shape), dtype)

        def dy(shape: tuple[int, ...]) -> jax.Array:
            return jnp.asarray(np.random.default_rng(1).normal(size=shape), dtype)

        args = strides, pads, dilation, groups
        ours = passes(conv_general_dilated, x, w, dy, *args)
        wide = np.float64 if dtype == np.float64 else np.float32
        x, w = x.astype(wide), w.astype(wide)
        theirs = passes(
            lax.conv_general_dilated, x, w, lambda s: dy(s).astype(wide), *args
        )
    for our, their in zip(ours, theirs, strict=True):
        assert our.dtype == dtype
        largest = np.abs(their).max(initial=1)
        np.testing.assert_allclose(
            np.asarray(our, np.float64), their, rtol=0, atol=tolerance * largest
        )


@pytest.mark.parametrize(
    ("images", "kernel", "features", "strides", "pads", "groups"),
    [
        pytest.param(
            (6, 12, 10, 8), (3, 3), 4, (2, 2), ((1, 1), (1, 1)), 1, id="strided"
        ),
        pytest.param(
            (4, 16, 12, 3), (4, 4), 6, (4, 4), ((0, 0), (0, 0)), 1, id="patchify"
        ),
        pytest.param((4, 11, 8, 6), (3, 3), 4, (2, 2), "SAME", 1, id="same"),
        pytest.param(
            (5, 7, 8, 6), (1, 1), 8, (2, 2), ((0, 0), (0, 0)), 1, id="1x1-strided"
        ),
        pytest.param((3, 8, 9, 4), (1, 7), 5, (1, 1), ((0, 0), (3, 3)), 1, id="1x7"),
        pytest.param(
            (3, 9, 8, 6), (5, 5), 6, (2, 2), ((2, 2), (2, 2)), 6, id="depthwise-strided"
        ),
        pytest.param((3, 9, 8, 6), (3, 3), 6, (1, 1), ((1, 1), (1, 1)), 2, id="groups"),
        pytest.param((3, 9, 8, 6), (2, 2), 6, (3, 3), ((0, 0), (0, 0)), 1, id="gaps"),
    ],
)
def test_passes_are_those_of_lax(
    images: tuple[int, ...],
    kernel: tuple[int, int],
    features: int,
    strides: tuple[int, int],
    pads: Pads,
    groups: int,
):
    compare(images, kernel, features, strides, pads, groups=groups)


def test_bfloat16_is_as_exact_as_its_outputs():
    # Products are summed in float32 and rounded once: 2^-8 of the largest, and as much
    # again for an input gradient that is a sum of two roundings.
    for channels in (16, 64):
        shape = (2, 6, 6, channels)
        options = {"dtype": jnp.bfloat16, "tolerance": 2**-7}
        compare(shape, (3, 3), channels, (1, 1), ((1, 1), (1, 1)), **options)
        compare(shape, (1, 1), channels, (1, 1), ((0, 0), (0, 0)), **options)


@pytest.mark.parametrize("num", [1, 3])
def test_bfloat16_gradients_compile_whole_for_any_number_of_images(num: int):
    # XLA:CPU has no product of bfloat16 whose left side is transposed, and fails when
    # such a program runs.
    def loss(x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = conv_general_dilated(x, kernel, (2, 2), ((1, 1), (1, 1)))
        return (y.astype(jnp.float32) ** 2).sum()

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(num, 6, 5, 64)), jnp.bfloat16)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 64, 64)) / 24, jnp.bfloat16)
    found = jax.jit(jax.grad(loss, (0, 1)))(x, kernel)

    def plain(x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            x, kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=NHWC
        )
        return (y**2).sum()

    wanted = jax.grad(plain, (0, 1))(x.astype(np.float32), kernel.astype(np.float32))
    for our, their in zip(found, wanted, strict=True):
        error = np.abs(np.asarray(our, np.float32) - their).max()
        assert error <= 2**-6 * np.abs(their).max()


sides = st.tuples(st.integers(0, 3), st.integers(0, 3))


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None)
@given(
    images=st.tuples(st.integers(1, 9), st.integers(1, 13), st.integers(1, 13)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.one_of(st.tuples(sides, sides), st.sampled_from(["SAME", "VALID"])),
    dilation=st.integers(1, 2),
    channels=st.sampled_from([1, 3, 8]),
    depthwise=st.booleans(),
)
def test_any_geometry(
    images: tuple[int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: Pads,
    dilation: int,
    channels: int,
    depthwise: bool,
):
    reach = [dilation * (k - 1) + 1 for k in kernel]
    padding = ((0, 0), (0, 0)) if isinstance(pads, str) else pads
    padded = [n + sum(p) for n, p in zip(images[1:], padding, strict=True)]
    assume(pads == "SAME" or all(n >= r for n, r in zip(padded, reach, strict=True)))
    groups = channels if depthwise else 1
    features = channels if depthwise else 4
    compare((*images, channels), kernel, features, strides, pads, dilation, groups)
