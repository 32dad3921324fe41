"""Export to LiteRT (formerly TensorFlow Lite), for phones and edge devices.

The converter reads StableHLO, and does not need TensorFlow. Converter and runtime need
a separate environment: they are compiled against other versions of JAX's dependencies.
"""

import io
import json
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
from jax import export
from jax.extend import core

from jaxtrain.environments import Environment
from jaxtrain.errors import ExportError, UserError
from jaxtrain.export.exporter import Exporter
from jaxtrain.export.request import Request, Runner
from jaxtrain.invocation import command
from jaxtrain.models import jaxprs
from jaxtrain.plugins.litert import run_litert
from jaxtrain.plugins.onnx.emitter.compute import function_of
from jaxtrain.plugins.onnx.emitter.simplify import simplify
from jaxtrain.plugins.onnx.emitter.trace import trace

LITERT = Environment(
    libraries=("litert_converter",),
    folder=".venv-litert",
    variable="JAXTRAIN_LITERT",
    target="litert",
    purpose="--format litert needs LiteRT's converter and runtime",
)
# Maximum number of the converter's error lines to show.
LINES = 3


class LiteRTFile(Exporter):
    """Exporter of LiteRT files, with norms folded into convolutions."""

    precisions = ("fp32", "int8")
    has_integers = True
    default_batch = 1

    def check_installed(self) -> None:
        LITERT.find()

    def check_request(self, request: Request) -> None:
        if request.precision == "int8" and not request.was_rounded:
            raise UserError(
                "--precision int8 with --format litert requires a quantized model: "
                f"quantize the model with {command('quantize')}, or train with "
                "model.quantize = 'int8'"
            )
        if request.batch is None:
            raise UserError(
                "--batch dynamic with --format litert: a LiteRT file has a fixed batch "
                "size; give a number, or leave --batch out for a batch size of 1"
            )

    def write(self, request: Request, path: Path) -> None:
        _convert(request, path)

    def load(self, path: Path, request: Request) -> Runner:
        return _start(path)


def _convert(request: Request, path: Path) -> None:
    """Convert a model and write its LiteRT file.

    Raises:
      UserError: LiteRT is not installed, or does not support an operator of the model.
    """
    function = with_convolutions(_function(request))
    exported = export.export(jax.jit(function), platforms=("cpu",))(request.images)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        program, about = Path(folder) / "program.mlir", Path(folder) / "about.json"
        program.write_text(str(exported.mlir_module()), encoding="utf-8")
        about.write_text(json.dumps(request.about()), encoding="utf-8")
        words = [program, path, about]
        done = subprocess.run(
            _command("convert", *words),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "rror:" in line]
        raise UserError(
            "--format litert: the LiteRT converter does not support this model "
            f"({' '.join(lines[-LINES:])[:500]}); choose --format onnx"
        )


def _function(request: Request) -> Callable[[Any], jax.Array]:
    """Return the function to export; for an int8 model, with fake quantization."""
    if not request.was_rounded:
        return request.function(folded=True)
    images, shape = request.images, request.images.shape[1:]
    given = request.function(), shape, images.dtype, request.batch
    start, output = trace(*given)
    return function_of(start, simplify(output))


def with_convolutions(
    function: Callable[[Any], jax.Array],
) -> Callable[[Any], jax.Array]:
    """Wrap a function of images to run its dense layers as 1x1 convolutions.

    LiteRT's converter 0.5.0 fails for products of (1, 1, 1, channels) with a matrix.
    """

    def convolved(x: jax.Array) -> jax.Array:
        traced = jax.make_jaxpr(function)(x)
        return _evaluate(traced.jaxpr, traced.consts, [x])[0]

    return convolved


def _evaluate(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr, with dense layers on images as 1x1 convolutions."""
    given = [*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs]
    values = dict(zip(*given, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for eqn in jaxpr.eqns:
        arrays = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name in jaxprs.CALLS:
            inner, inner_consts = jaxprs.called(eqn)
            outputs = _evaluate(inner, inner_consts, arrays)
        elif _is_dense(eqn):
            x, kernel = arrays
            dims = ("NHWC", "HWIO", "NHWC")
            kind = eqn.params["preferred_element_type"]
            outputs = [
                jax.lax.conv_general_dilated(
                    *(x, kernel[None, None], (1, 1), "VALID"),
                    dimension_numbers=dims,
                    preferred_element_type=kind,
                )
            ]
        else:
            outputs = jaxprs.apply(jaxpr, eqn, arrays)
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _is_dense(eqn: Any) -> bool:
    """Whether an equation multiplies (batch, rows, columns, in) by (in, out)."""
    if eqn.primitive.name != "dot_general":
        return False
    dims, (x, kernel) = eqn.params["dimension_numbers"], eqn.invars
    return (x.aval.ndim, kernel.aval.ndim, dims) == (4, 2, (((3,), (0,)), ((), ())))


def _start(path: Path) -> Runner:
    """Start a process that runs a LiteRT file; return the file's function of images.

    The process ends when the function is garbage-collected.
    """
    stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (`_end` closes it)
    process = subprocess.Popen(
        _command("run", path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )

    def run(images: np.ndarray) -> np.ndarray:
        given, answers = process.stdin, process.stdout
        assert given is not None and answers is not None
        array = io.BytesIO()
        np.save(array, images)
        try:
            given.write(array.tell().to_bytes(8, "big") + array.getvalue())
            given.flush()
        except BrokenPipeError:
            pass
        size = answers.read(8)
        if len(size) < 8:
            code = process.wait()
            stderr.seek(0)
            why = stderr.read().strip().rpartition("\n")[2]
            raise ExportError(
                f"LiteRT cannot run the file (exit code {code}: {why}): choose another "
                "--batch, or --format onnx"
            )
        return np.load(io.BytesIO(answers.read(int.from_bytes(size, "big"))))

    weakref.finalize(run, _end, process, stderr)
    return run


def _end(process: "subprocess.Popen[bytes]", stderr: IO[str]) -> None:
    process.kill()
    process.communicate()
    stderr.close()


def _command(*words: object) -> list[str]:
    # -P prevents modules in the script's directory from shadowing libraries.
    return [str(LITERT.find()), "-P", run_litert.__file__, *map(str, words)]
