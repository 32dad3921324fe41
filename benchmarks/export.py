"""Our ONNX file against that of torch.onnx, in ONNX Runtime on the CPU.

    python benchmarks/export.py --peer-python /path/to/python [--model resnet18]

The peer's interpreter has torch and torchvision 0.28 (installed with --no-deps), of
which torch.onnx exports the same architecture. Both files take turns on the same random
images of 224x224, by as many threads as there are cores, and the median of the pairs'
ratios counts. `operators` is what ONNX Runtime is left with once it has joined what it
can.
"""

import argparse
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jmp
import numpy as np
import onnx
import onnxruntime
from flax import nnx
from pairs import Seconds, compare, take_turns, tell, timed

from jaxtrain.config.model import MODELS as MODEL_PARTS
from jaxtrain.config.part import make_part
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.parallel import devices
from jaxtrain.plugins.onnx.onnx_file import emit
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model

PAIRS = 25
SIZE = 224
# torchvision imports once the operators are declared that its own library would bring.
PEER = """
import sys, torch
library = torch.library.Library("torchvision", "DEF")
arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
library.define("nms" + arguments)
library.define("qnms" + arguments)
import torchvision
model = torchvision.models.get_model(sys.argv[1], weights=None).eval()
example = torch.zeros(1, 3, 224, 224)
names = {"input_names": ["images"], "output_names": ["logits"]}
torch.onnx.export(model, (example,), sys.argv[2], dynamo=False, opset_version=17,
                  dynamic_axes={"images": {0: "batch"}}, **names)
"""


def write_ours(name: str, path: Path) -> None:
    """Export our model, with random weights."""
    policy = jmp.get_policy("params=float32,compute=float32,output=float32")
    shape = (SIZE, SIZE, 3)
    config = make_part(MODEL_PARTS, name)
    blueprint = Blueprint(
        config=config, image_shape=shape, num_outputs=1000, policy=policy
    )
    model = blueprint.build(nnx.Rngs(0))
    graphdef, params, model_state = split_model(model)

    def function(images: jax.Array) -> jax.Array:
        return predict(graphdef, params, model_state, images)

    onnx.save(emit(function, shape, dtype=np.float32), path)


def open_file(path: Path) -> tuple[Any, dict[str, int]]:
    """Return a session, and the operators that it runs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path.with_suffix(".optimized"))
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    graph = onnx.load(options.optimized_model_filepath).graph
    return session, dict(Counter(node.op_type for node in graph.node))


def timer(session: Any, images: np.ndarray) -> Callable[[], Seconds]:
    """Return what times one call."""
    return lambda: timed(lambda: session.run(None, {"images": images}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    devices.start("cpu")
    with tempfile.TemporaryDirectory() as folder:
        ours, peer = (Path(folder) / f"{name}.onnx" for name in ("ours", "peer"))
        write_ours(args.model, ours)
        command = [args.peer_python, "-W", "ignore", "-c", PEER, args.model, str(peer)]
        subprocess.run(command, check=True)
        our_session, our_operators = open_file(ours)
        peer_session, peer_operators = open_file(peer)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(args.batch, SIZE, SIZE, 3)).astype(np.float32)
    moved = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    runs = [timer(our_session, images), timer(peer_session, moved)]
    for run in runs:
        run()
    ours, peer = take_turns(runs, PAIRS)
    result = {
        "model": args.model,
        "batch": args.batch,
        **compare(ours, peer, args.batch),
        "operators": {"ours": our_operators, "peer": peer_operators},
    }
    tell("export", result, libraries={"onnxruntime": onnxruntime.__version__})


if __name__ == "__main__":
    main()
