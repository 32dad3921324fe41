"""StableHLO export, to a single file or to a directory, for execution with JAX.

The program runs on CPU, NVIDIA GPU and TPU. `jax.export` guarantees compatibility with
JAX versions of the next six months.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from safetensors.numpy import save

from jaxtrain.errors import UserError
from jaxtrain.export import run_saved
from jaxtrain.export.exporter import Exporter
from jaxtrain.export.request import Request, Runner
from jaxtrain.json_files.write import write_digested
from jaxtrain.trees import by_path

PLATFORMS = ("cpu", "cuda", "tpu")
PROGRAM, WEIGHTS = "program.stablehlo", "weights.safetensors"
ABOUT, SCRIPT = "model.json", "run.py"


class StableHLOFile(Exporter):
    """Export to a single file, in which the weights are constants of the program.

    Batch norms are folded into convolutions.
    """

    def write(self, request: Request, path: Path) -> None:
        _write(path, request.function(folded=True), request.images)

    def load(self, path: Path, request: Request) -> Runner:
        run: Any = jax.jit(export.deserialize(bytearray(path.read_bytes())).call)
        return lambda images: np.asarray(run(images))


class SavedFolder(Exporter):
    """Export to a directory: program, weights, and a script that runs the program."""

    is_folder = True

    def check_request(self, request: Request) -> None:
        kind = request.model.description.input
        if not kind.are_images:
            raise UserError(
                "--format saved supports only image models, but the model takes "
                f"{kind.noun}s; choose another --format"
            )

    def write(self, request: Request, path: Path) -> None:
        _write_folder(request, path)

    def load(self, path: Path, request: Request) -> Runner:
        return runpy.run_path(str(path / SCRIPT))["run"]


def _write_folder(request: Request, path: Path) -> None:
    """Write the program, its weights, the model description, and a script.

    The weights are arguments of the program, so that users can inspect and replace
    them.
    """
    weights = request.weights(round_kernels=True)
    # Names stay unique without the first part of the path, which separates parameters
    # from other state.
    named = {
        path.partition("/")[2].replace("/", "."): x
        for path, x in by_path(weights).items()
    }
    tree = jax.tree.structure(weights)
    assert len(named) == tree.num_leaves

    def function(arrays: list[jax.Array], images: jax.Array) -> jax.Array:
        return request.apply(jax.tree.unflatten(tree, arrays), images)

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in named.values()]
    _write(path / PROGRAM, function, shapes, request.images)
    (path / WEIGHTS).write_bytes(save(named))
    write_digested(path / ABOUT, {**request.about(), "weights": list(named)})
    (path / SCRIPT).write_bytes(Path(run_saved.__file__).read_bytes())


def _write(path: Path, function: Callable[..., jax.Array], *arguments: Any) -> None:
    exported = export.export(jax.jit(function), platforms=PLATFORMS)(*arguments)
    path.write_bytes(bytes(exported.serialize()))
