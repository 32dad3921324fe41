"""StableHLO: the compiled function's source, which JAX alone runs again.

The weights are a part of it. `jax.export` runs it for six months of newer versions at
least, on CPU, NVIDIA GPU and TPU.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from jaxtrain.errors import UserError
from jaxtrain.export.request import Request, Runner

PLATFORMS = ("cpu", "cuda", "tpu")


def check_request(request: Request) -> None:
    """Check the precision.

    Raises:
      UserError: it is int8, which is ONNX Runtime's.
    """
    if request.precision == "int8":
        raise UserError(
            "--precision int8: only --format onnx has it; choose fp32, bf16 or fp16"
        )


def write(request: Request, path: Path) -> None:
    """Write the file."""
    program = request.program(round_kernels=True)
    images = program.inputs(batch_size(request))
    exported = export.export(jax.jit(program), platforms=PLATFORMS)(images)
    path.write_bytes(bytes(exported.serialize()))


def load(path: Path, request: Request) -> Runner:
    """Return what runs the file: JAX on its default device."""
    run: Any = jax.jit(export.deserialize(bytearray(path.read_bytes())).call)
    return lambda images: np.asarray(run(images))


def slow_images(request: Request) -> int | None:
    """Return None: the runtime is not slow."""
    return None


def batch_size(request: Request) -> Any:
    """Return the size of a batch, or a symbol of it."""
    return request.batch or export.symbolic_shape("batch")[0]
