"""Whether OpenVINO computes from our ONNX files what JAX does.

    python benchmarks/openvino_reads.py --peer-python /path/to/python

The peer's interpreter has openvino, whose 180 MB are too many for the tests. For each
model it prints the largest difference over the largest logit, at two sizes of a batch.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import jax
import jmp
import numpy as np
import onnx
from flax import nnx

from jaxtrain.config import ModelConfig
from jaxtrain.export.formats.onnx_file import emit
from jaxtrain.models import build
from jaxtrain.parallel import devices
from jaxtrain.training.state import split_model
from jaxtrain.training.step import predict

NAMES = ("lenet", "convnet", "cnn4", "resnet18", "resnet50")
SHAPE = (64, 64, 3)
PEER = """
import sys, numpy as np, openvino
core = openvino.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
model = core.compile_model(sys.argv[1], "CPU")
images = np.load(sys.argv[2])
for num in (1, len(images)):
    outputs = model(images[:num])[0]
np.save(sys.argv[3], outputs)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", required=True)
    args = parser.parse_args()
    devices.start("cpu")
    policy = jmp.get_policy("params=float32,compute=float32,output=float32")
    images = np.random.default_rng(0).normal(size=(3, *SHAPE)).astype(np.float32)
    found = {}
    for name in NAMES:
        model = build(
            ModelConfig(name=name),
            image_shape=SHAPE,
            num_outputs=10,
            policy=policy,
            rngs=nnx.Rngs(0),
        )
        graphdef, params, state = split_model(model)

        def function(
            x: jax.Array, graphdef=graphdef, params=params, state=state
        ) -> jax.Array:
            return predict(graphdef, params, state, x)

        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(folder) / f) for f in ("m.onnx", "in.npy", "out.npy")]
            onnx.save(emit(function, SHAPE, dtype=np.float32), paths[0])
            np.save(paths[1], images)
            subprocess.run([args.peer_python, "-c", PEER, *paths], check=True)
            outputs = np.load(paths[2])
        wanted = np.asarray(jax.jit(function)(images))
        found[name] = float(np.abs(outputs - wanted).max() / np.abs(wanted).max())
    print(json.dumps({"name": "openvino_reads", "difference": found}))


if __name__ == "__main__":
    main()
