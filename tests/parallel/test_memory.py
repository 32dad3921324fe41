"""Memory that is used again is that of arrays that nobody can see."""

import gc
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from jaxtrain.data import memory
from tests.helpers.rows import each_row

SHAPE = (3, 200, 100, 2)


@pytest.fixture(autouse=True)
def none_ready() -> Iterator[None]:
    memory._ready.clear()
    gc.freeze()  # To collect what is there already takes seconds.
    yield
    gc.unfreeze()


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_of_an_array_that_is_gone_is_used_again():
    array = memory.empty(SHAPE)
    assert array.shape == SHAPE and array.dtype == np.uint8 and array.flags.writeable
    place = address(array)
    del array
    assert address(memory.empty(SHAPE)) == place
    # One of another size takes new memory, and leaves this to the next.
    other = memory.empty((7,))
    assert other.shape == (7,) and address(other) != place
    assert address(memory.empty(SHAPE)) == place


@each_row(
    "use",
    [
        lambda array: array[None],
        lambda array: array.reshape(-1)[5:].view()[::2],
        lambda array: array[1, 2:].T[1:].view(np.int8),
        lambda array: memoryview(array)[1:],
        lambda array: iter(array),
    ],
)
def test_what_others_see_is_not_used_again(use):
    # What earlier tests have left is given back now.
    gc.collect()
    memory._ready.clear()
    array = memory.empty(SHAPE)
    seen = use(array)
    del array
    gc.collect()
    assert not memory._ready
    del seen
    gc.collect()
    assert len(memory._ready) == 1


def test_what_jax_holds_without_a_copy_stays_as_it_is():
    """As batches on the CPU do, where `device_put` need not copy."""
    held, shared = [], 0
    for value in range(20):
        array = memory.empty((2**16 + 64,))
        # JAX makes no copy of what begins at a multiple of 64.
        array = array[-address(array) % 64 :][: 2**16]
        array[:] = value
        held.append(jax.device_put(array[None]))
        shared += held[-1].unsafe_buffer_pointer() == address(array)
        del array
    assert shared == len(held)
    for value, one in enumerate(held):
        assert (np.asarray(one) == value).all()


def test_little_lies_ready():
    arrays = [memory.empty((50,)) for _ in range(3 * memory.MAX_READY)]
    del arrays
    assert len(memory._ready) == memory.MAX_READY
