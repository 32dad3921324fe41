"""Log-mel spectrograms, computed on the device before augmentation.

Equal to librosa (McFee et al. 2015) with frames centred on every `hop`-th sample, zero
padding, a periodic Hann window, power spectra, Slaney's mel bands (`htk=False,
norm="slaney"`), and decibels relative to a power of 1.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.sound import SoundConfig
from jaxtrain.dtypes import wide

# Divisor that scales int16 samples to -1..1.
FULL_SCALE = 2**15
# Minimum power: smaller values are clamped to it before the logarithm.
LEAST_POWER = 1e-10
# Levels shown as black and as white, in decibels. A full-scale sine has about 26 dB.
BLACK, WHITE = -80.0, 40.0
# Slaney's mel scale: up to 1000 Hz, 200 / 3 Hz per mel; above, the logarithm of the
# frequency rises by ln(6.4) / 27 per mel (Auditory Toolbox, Slaney 1998).
LINEAR_STEP, KNEE, LOG_STEP = 200 / 3, 1000.0, math.log(6.4) / 27


def to_images(clips: jax.Array, sound: SoundConfig) -> jax.Array:
    """Convert clips to spectrograms, as greyscale images that are not rounded. Traced.

    Args:
      clips: Clips, int16 (B, samples, 1, 1).
      sound: Config section `data.sound`.

    Returns:
      Images in 0..255 for `BLACK`..`WHITE` decibels, (B, mels, frames, 1), at least
      float32; the lowest mel band comes first.
    """
    decibels = log_mel(clips[:, :, 0, 0].astype(_float()) / FULL_SCALE, sound)
    scaled = 255 * (decibels - BLACK) / (WHITE - BLACK)
    return jnp.clip(scaled, 0, 255)[..., None]


def log_mel(waves: jax.Array, sound: SoundConfig) -> jax.Array:
    """Log-mel spectrograms in decibels, (B, mels, frames).

    The short-time Fourier transform is computed by a convolution, which all export
    formats support.

    Args:
      waves: Samples in -1..1, (B, samples).
      sound: Config section `data.sound`.
    """
    half = sound.window // 2
    kernel = jnp.asarray(_fourier(sound.window), waves.dtype)
    found = jax.lax.conv_general_dilated(
        waves[:, :, None, None],
        kernel[:, None, None, :],
        (sound.hop, 1),
        ((half, half), (0, 0)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )[:, :, 0]
    parts = jnp.square(found)
    power = parts[..., : half + 1] + parts[..., half + 1 :]
    bands = jnp.asarray(mel_bands(sound), waves.dtype)
    mel = jnp.dot(power, bands.T, precision=jax.lax.Precision.HIGHEST)
    logs = jnp.log(jnp.maximum(mel, LEAST_POWER))
    return (10 / math.log(10)) * jnp.swapaxes(logs, 1, 2)


def mel_bands(sound: SoundConfig) -> np.ndarray:
    """Mel filter bank, (mels, window // 2 + 1).

    Each filter is a triangle of area 1 (in Hz) between the centres of the adjacent
    bands.
    """
    # For an odd window length, the last frequency is below half the sample rate.
    frequencies = np.fft.rfftfreq(sound.window, 1 / sound.sample_rate)
    corners = _to_hertz(np.linspace(0, _to_mel(sound.sample_rate / 2), sound.mels + 2))
    widths = np.diff(corners)[:, None]
    ramps = corners[:, None] - frequencies
    rising, falling = -ramps[:-2] / widths[:-1], ramps[2:] / widths[1:]
    weights = np.maximum(0, np.minimum(rising, falling))
    return weights * (2 / (corners[2:] - corners[:-2]))[:, None]


def _fourier(window: int) -> np.ndarray:
    """Windowed Fourier basis: real parts, then imaginary parts, (window, 2 * bins)."""
    time, bins = np.arange(window)[:, None], np.arange(window // 2 + 1)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * time / window)
    # Reduce angles to one turn while they are integers, as large floats are inexact.
    angle = 2 * np.pi * ((time * bins) % window) / window
    return np.concatenate([hann * np.cos(angle), -hann * np.sin(angle)], axis=1)


def _to_mel(hertz: float) -> float:
    if hertz < KNEE:
        return hertz / LINEAR_STEP
    return KNEE / LINEAR_STEP + math.log(hertz / KNEE) / LOG_STEP


def _to_hertz(mels: np.ndarray) -> np.ndarray:
    knee = KNEE / LINEAR_STEP
    logarithmic = KNEE * np.exp(LOG_STEP * (np.maximum(mels, knee) - knee))
    return np.where(mels < knee, LINEAR_STEP * mels, logarithmic)


def _float() -> Any:
    """Dtype of the computation: float64 if JAX enables it, else float32."""
    return wide(jnp.zeros(()).dtype)
