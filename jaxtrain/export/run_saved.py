"""Run the exported model of this directory: python run.py IMAGES.npy (uint8, NHWC).

Requires jax, numpy and safetensors. In Python, call `run(images)`; model.json has the
shape of the images.
"""

import functools
import hashlib
import json
import pathlib
import sys

import jax
import numpy as np
from jax import export
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).parent


@functools.cache
def load():
    """Return the jitted program, its list of weights, and the content of model.json."""
    about = read_about()
    weights = load_file(HERE / "weights.safetensors")
    program = export.deserialize(bytearray((HERE / "program.stablehlo").read_bytes()))
    return jax.jit(program.call), [weights[n] for n in about["weights"]], about


def read_about():
    """Read model.json and verify its digest."""
    about = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
    if "sha256" in about:
        written = about.pop("sha256")
        text = json.dumps(about, sort_keys=True, separators=(",", ":"))
        if hashlib.sha256(text.encode()).hexdigest() != written:
            raise ValueError(
                f"{HERE / 'model.json'} does not match the digest in the file: copy "
                "the file again or, after a deliberate edit, remove the field 'sha256'"
            )
    return about


def run(images):
    """Return the outputs for images, float32 (N, outputs), described in model.json."""
    program, weights, about = load()
    dtype = np.dtype(about["input"]["dtype"])
    if images.dtype == np.uint8 and dtype == np.float32:
        images = (images / 255 - about["mean"]) / about["std"]
    elif images.dtype != dtype and dtype != np.float32:
        raise TypeError(
            f"images have the dtype {images.dtype}: expected {dtype} pixels"
        )
    return np.asarray(program(weights, images.astype(dtype)))


if __name__ == "__main__":
    # Class names may have characters that standard output cannot encode.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    names, numbers = (load()[2].get(k) for k in ("class_names", "output_names"))
    boxes = load()[2].get("box_names")
    for outputs in run(np.load(sys.argv[1])):
        if boxes and outputs.shape[-1] == 6 and load()[2]["output"] == "detections":
            for *box, score, kind in outputs[outputs[:, 4] > 0]:
                text = ", ".join(f"{x:.1f}" for x in box)
                print(boxes[int(kind)], f"{score:.4f}", f"at {text}")
            continue
        if boxes:
            place, kind = np.unravel_index(outputs[:, 4:].argmax(), (-1, len(boxes)))
            text = ", ".join(f"{x:.1f}" for x in outputs[place, :4])
            print(boxes[kind], f"{outputs[place, 4 + kind]:.4f}", f"at {text}")
            continue
        if numbers:
            text = zip(numbers, outputs, strict=True)
            print(", ".join(f"{name} {x:.6g}" for name, x in text))
            continue
        best = int(outputs.argmax())
        print(names[best] if names else best, f"{outputs[best]:.4f}")
