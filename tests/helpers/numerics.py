"""How near results must be to each other."""

from typing import Any

import jax
import numpy as np

# Runs that are compared over devices, stages or processes compute in float64. Sums in
# another order then differ by about 1e-16, and by less than TOLERANCE after some tens
# of steps. In float32 an activation within rounding of a ReLU's corner changes a
# gradient by 1e-3, and which step meets one depends on the CPU.
FP64: dict[str, Any] = {"JAX_ENABLE_X64": "1"}
TOLERANCE = 1e-9


def same(a: Any, b: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), a, b))


def close(a: Any, b: Any, *, rtol: float, atol: float) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol, atol), a, b)
