"""Script for LiteRT's environment: convert a program, or run a file.

    python run_litert.py convert PROGRAM FILE ABOUT
    python run_litert.py run FILE

It imports neither jaxtrain nor JAX, which are incompatible with LiteRT's libraries.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import flatbuffers  # pyright: ignore[reportMissingImports]
import numpy as np

# Signature name of a LiteRT file's only function.
SIGNATURE = "serving_default"


def convert(program: Path, file: Path, about: Path) -> None:
    """Convert a StableHLO program to a LiteRT file.

    Args:
      program: File of the program, StableHLO as text.
      file: LiteRT file to write.
      about: JSON file with the names of input and output and the precision; its
        contents become metadata of the LiteRT file.
    """
    from litert_converter import (  # pyright: ignore[reportMissingImports]
        converter_api_ext,
    )
    from litert_converter.mlir import (  # pyright: ignore[reportMissingImports]
        ir,
        passmanager,
    )

    metadata = json.loads(about.read_text(encoding="utf-8"))
    context = ir.Context()
    converter_api_ext.prepare_mlir_context(context)
    with context:
        module = ir.Module.parse(program.read_text(encoding="utf-8"))
        names = [metadata["input"]["name"]], [metadata["output"]]
        converter_api_ext.set_signature(module.operation, SIGNATURE, *names)
        config = converter_api_ext.ConvertToTFLConfig()
        # Convert fake quantization to integer operations.
        if metadata["precision"] == "int8":
            config.qdq_conversion_mode, config.strict_qdq_mode = "STATIC", True
        converter_api_ext.run_convert_to_tfl_passes(
            module, passmanager.PassManager(), config
        )
        made = converter_api_ext.export_flatbuffer_to_bytes(module.operation)
    file.write_bytes(with_metadata(made, "jaxtrain", about.read_bytes()))


def with_metadata(model: bytes, name: str, value: bytes) -> bytes:
    """Add a metadata entry to the bytes of a LiteRT file."""
    from litert_converter import (  # pyright: ignore[reportMissingImports]
        schema_py_generated as schema,
    )

    tree = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    entry, buffer = schema.MetadataT(), schema.BufferT()
    entry.name, entry.buffer = name, len(tree.buffers)
    buffer.data = np.frombuffer(value, np.uint8)
    tree.buffers.append(buffer)
    tree.metadata = [*(tree.metadata or []), entry]
    builder = flatbuffers.Builder(len(model) + len(value))
    builder.Finish(tree.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def run(file: Path, given: BinaryIO, answers: BinaryIO) -> None:
    """Run a LiteRT file on each image array of a stream.

    Each array is in NumPy's .npy format, preceded by its size in bytes, a big-endian
    uint64.

    Args:
      file: LiteRT file to run.
      given: Stream of image arrays, (batch, rows, columns, channels).
      answers: Stream to write the output arrays to.
    """
    from ai_edge_litert.interpreter import (  # pyright: ignore[reportMissingImports]
        Interpreter,
    )

    threads = len(os.sched_getaffinity(0))
    interpreter = Interpreter(model_path=str(file), num_threads=threads)
    runner: Any = interpreter.get_signature_runner(SIGNATURE)
    (name,) = runner.get_input_details()
    while size := given.read(8):
        images = np.load(io.BytesIO(given.read(int.from_bytes(size, "big"))))
        (outputs,) = runner(**{name: images}).values()
        answer = io.BytesIO()
        np.save(answer, outputs)
        answers.write(answer.tell().to_bytes(8, "big") + answer.getvalue())
        answers.flush()


def main() -> None:
    # Redirect the libraries' output from stdout to stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    what, *paths = sys.argv[1:]
    if what == "convert":
        convert(*map(Path, paths))
    else:
        run(Path(*paths), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
