"""A folder: the program, its weights apart, what they mean, and a script that runs it.

The program takes the weights as arguments, so that both can be looked at, and others be
put in the place of these.
"""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from safetensors.numpy import save

from jaxtrain.export.formats import run_saved, stablehlo
from jaxtrain.export.request import Request, Runner
from jaxtrain.records.workdir import write_digested
from jaxtrain.trees import by_path

PROGRAM, WEIGHTS = "program.stablehlo", "weights.safetensors"
ABOUT, SCRIPT = "model.json", "run.py"

check_request = stablehlo.check_request
slow_images = stablehlo.slow_images


def write(request: Request, path: Path) -> None:
    """Write into the folder."""
    program = request.program(round_kernels=True)
    weights = program.params, program.model_state
    # Params and state have no names in common: their layers' leaves differ.
    named = {
        path.partition("/")[2].replace("/", "."): np.asarray(x)
        for path, x in by_path(weights).items()
    }
    tree = jax.tree.structure(weights)
    assert len(named) == tree.num_leaves

    def function(arrays: list[jax.Array], images: jax.Array) -> jax.Array:
        params, model_state = jax.tree.unflatten(tree, arrays)
        return program.apply(params, model_state, images)

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in named.values()]
    images = program.inputs(stablehlo.batch_size(request))
    exported = export.export(jax.jit(function), platforms=stablehlo.PLATFORMS)
    (path / PROGRAM).write_bytes(bytes(exported(shapes, images).serialize()))
    (path / WEIGHTS).write_bytes(save(named))
    about = {**request.about(), "weights": list(named)}
    write_digested(path / ABOUT, about)
    (path / SCRIPT).write_text(Path(run_saved.__file__).read_text())


def load(path: Path, request: Request) -> Runner:
    """Return what runs the folder: its own script."""
    spec = importlib.util.spec_from_file_location("run_saved_copy", path / SCRIPT)
    assert spec is not None and spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.run
