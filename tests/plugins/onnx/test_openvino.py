"""OpenVINO, a runtime of its own, reads our ONNX files."""

import subprocess
import sys
from pathlib import Path

import jax
import jmp
import numpy as np
import onnx
import pytest
from flax import nnx

from jaxtrain.config import ResNetConfig
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.plugins.onnx.onnx_file import emit
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model

SHAPE = (64, 64, 3)
# In a process of its own: it has threads, and may warn as it likes.
READ = """
import sys, numpy as np, openvino
core = openvino.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
model = core.compile_model(sys.argv[1], "CPU")
images = np.load(sys.argv[2])
for num in (1, len(images)):
    outputs = model(images[:num])[0]
np.save(sys.argv[3], outputs)
"""


@pytest.mark.slow
def test_openvino_computes_what_the_model_does(tmp_path: Path):
    policy = jmp.get_policy("params=float32,compute=float32,output=float32")
    blueprint = Blueprint(
        config=ResNetConfig(name="resnet18"),
        image_shape=SHAPE,
        num_outputs=10,
        policy=policy,
    )
    model = blueprint.build(nnx.Rngs(0))
    graphdef, params, state = split_model(model)

    def function(images: jax.Array) -> jax.Array:
        return predict(graphdef, params, state, images)

    images = np.random.default_rng(0).normal(size=(3, *SHAPE)).astype(np.float32)
    paths = [str(tmp_path / name) for name in ("m.onnx", "in.npy", "out.npy")]
    onnx.save(emit(function, SHAPE, dtype=np.float32), paths[0])
    np.save(paths[1], images)
    subprocess.run([sys.executable, "-c", READ, *paths], check=True, timeout=300)
    expected = np.asarray(jax.jit(function)(images))
    error = np.abs(np.load(paths[2]) - expected).max() / np.abs(expected).max()
    # Sums of float32 in another order: 2e-6 at most were seen.
    assert error < 1e-5
