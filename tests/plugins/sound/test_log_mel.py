"""Spectrograms against librosa's numbers, and masks on them."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import AugmentConfig, SoundConfig
from jaxtrain.data.augment import augment
from jaxtrain.data.augment.apply import make_keys
from jaxtrain.errors import UserError
from jaxtrain.plugins.sound import log_mel
from tests.helpers.waves import SETTINGS, chirp

THEIRS = json.loads((Path(__file__).parents[2] / "stored" / "log_mel.json").read_text())


def sound_of(setting: dict) -> SoundConfig:
    rate, window, hop, mels = setting["numbers"]
    seconds = setting["samples"] / rate
    return SoundConfig(
        sample_rate=rate, seconds=seconds, window=window, hop=hop, mels=mels
    )


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_decibels_are_those_of_librosa(number: int):
    wave, sound = chirp(SETTINGS[number]["samples"]), sound_of(SETTINGS[number])
    found = log_mel.log_mel(jnp.float32(wave)[None], sound)
    theirs = np.array(THEIRS[number])
    assert found.shape == (1, *sound.image_shape[:2]) == (1, *theirs.shape)
    # Float32 sums of powers; theirs has float64.
    np.testing.assert_allclose(found[0], theirs, atol=1e-4)


def test_images_are_decibels_from_black_to_white():
    sound = sound_of(SETTINGS[0])
    wave = chirp(sound.samples)
    clips = np.rint(wave * 2**15).astype(np.int16).reshape(1, *sound.stored_shape)
    image = log_mel.to_images(jnp.asarray(clips), sound)
    assert image.shape == (1, *sound.image_shape)
    expected = 255 * (np.array(THEIRS[0]) + 80) / 120
    np.testing.assert_allclose(image[0, ..., 0], expected, atol=5e-4)
    silence = jnp.zeros((1, *sound.stored_shape), jnp.int16)
    assert not log_mel.to_images(silence, sound).any()


@pytest.mark.slow
def test_masks_are_bands_of_the_mean_by_the_key_of_the_example():
    rows, columns, fill = 20, 30, 7.0
    config = AugmentConfig(time_masks=2, frequency_masks=1)
    num = 200
    image = jnp.full((num, rows, columns, 1), 99.5)
    index = jnp.arange(num, dtype=jnp.int32)
    keys = make_keys(jax.random.key(0), jnp.int32(3), index)
    batch = {"image": image, "target": jnp.zeros(num)}
    found = augment(batch, keys, config, jnp.array([fill]))["image"][..., 0]
    masked: Any = np.asarray(found) == 7
    assert set(np.unique(found)) == {7.0, 99.5}
    # A place is masked if its row or its column is.
    whole_rows, whole_columns = masked.all(2), masked.all(1)
    np.testing.assert_array_equal(
        masked, whole_rows[:, :, None] | whole_columns[:, None, :]
    )
    bands, frames = whole_rows.sum(1), whole_columns.sum(1)
    assert bands.max() == 8 and bands.min() == 0 and frames.max() > 10
    # One band in a row, of a width of 0 to 8 that is uniform: a mean of 4.
    assert all((np.diff(np.flatnonzero(row)) == 1).all() for row in whole_rows)
    assert abs(bands.mean() - 4) < 4 * 2.58 / num**0.5
    half = augment(
        jax.tree.map(lambda x: x[100:], batch), keys[100:], config, jnp.array([fill])
    )
    np.testing.assert_array_equal(half["image"][..., 0], found[100:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 32, "mels": 17}, "a frame has only 16 frequencies above 0"),
        ({"seconds": 0}, "seconds = 0: expected a value above 0"),
        ({"seconds": 1e5}, "expected 1 to 67108864 samples"),
        ({"sample_rate": 10}, "sample_rate = 10: expected 1000 to 384000"),
    ],
)
def test_impossible_settings_are_refused(options: dict, message: str):
    with pytest.raises(UserError, match=message):
        SoundConfig(**options)
