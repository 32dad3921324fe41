"""Views and first weights of a small network, on which PyTorch has trained, too.

Needs NumPy only, as `tests/oracles/view_steps.py` imports it beside PyTorch.
"""

import numpy as np

STEPS, BATCH, PIXELS = 20, 16, (2, 3)
HIDDEN, SIZE, PROJECTION = 12, 10, 4
# Exact in float32, which schedules and averages compute in, or rounded by 1e-8.
RATE, MOMENTUM, DECAY, TEMPERATURE = 2.0**-4, 0.9, 0.75, 0.5
# Layers in the order of the network: inputs and outputs of dense ones, and channels of
# batch norms.
DENSE = {
    "stem": (PIXELS[0] * PIXELS[1], HIDDEN),
    "head": (HIDDEN, SIZE),
    "project": (SIZE, PROJECTION),
    "widen": (PROJECTION, SIZE),
    "predict": (SIZE, PROJECTION),
}
NORMS = {"stem_norm": HIDDEN, "project_norm": SIZE, "predict_norm": SIZE}


def images() -> np.ndarray:
    """Return both views of 8 images beside each other, for 20 steps, float64.

    Their shape is (20, 16, 2, 3, 1).
    """
    rng = np.random.default_rng(11)
    one = rng.standard_normal((STEPS, BATCH // 2, 1, *PIXELS, 1))
    noise = rng.standard_normal((STEPS, BATCH // 2, 2, *PIXELS, 1))
    return (one + 0.5 * noise).reshape(STEPS, BATCH, *PIXELS, 1)


def index() -> np.ndarray:
    """Return the numbers of the images of a batch, int32 (16,)."""
    return np.repeat(np.arange(BATCH // 2, dtype=np.int32), 2)


def kernels() -> dict[str, np.ndarray]:
    """Return first kernels, (inputs, outputs), by the names of the layers."""
    rng = np.random.default_rng(12)
    return {n: rng.standard_normal(s) / np.sqrt(s[0]) for n, s in DENSE.items()}
