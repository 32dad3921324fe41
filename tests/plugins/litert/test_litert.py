"""Files of LiteRT, run by its own runtime: from the command line to the outputs."""

import re
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.config import LeNetConfig
from jaxtrain.errors import ExportError, UserError
from jaxtrain.export import export as export_lib
from jaxtrain.export.request import Request
from jaxtrain.plugins.litert import litert
from jaxtrain.plugins.quantization.quantize import quantize
from jaxtrain.trees import by_path
from tests.helpers.digits import read_test
from tests.helpers.needs import need
from tests.helpers.parts import model_config
from tests.helpers.processes import ROOT
from tests.helpers.untrained import untrained

# A family each, with what others lack: sums, groups, gates, joined channels, layer
# norms.
MODELS: dict[str, dict[str, Any]] = {
    "lenet": {},
    "resnet18": {"width": 0.125, "stem": "cifar"},
    "mobilenet_v2": {"width": 0.25},
    "mobilenet_v3_small": {},
    "efficientnet_b0": {},
    "densenet121": {},
    "convnext_tiny": {"width": 0.125},
}
READ = """
import json, sys
from ai_edge_litert.interpreter import Interpreter
from litert_converter import schema_py_generated as schema
interpreter = Interpreter(model_path=sys.argv[1])
file = schema.Model.GetRootAs(open(sys.argv[1], "rb").read(), 0)
entries = [file.Metadata(i) for i in range(file.MetadataLength())]
(entry,) = [entry for entry in entries if entry.Name() == b"jaxtrain"]
buffer = file.Buffers(entry.Buffer()).DataAsNumpy()
about = json.loads(bytes(buffer))
print(interpreter.get_signature_list(), about["class_names"], about["input"]["shape"])
"""
# Of convolutions, depthwise ones and dense layers.
KERNELS = """
import sys
from litert_converter import schema_py_generated as schema
file = schema.Model.GetRootAs(open(sys.argv[1], "rb").read(), 0)
names = {v: k for k, v in vars(schema.TensorType).items()}
products = {3, 4, 9}
graph = file.Subgraphs(0)
for i in range(graph.OperatorsLength()):
    operator = graph.Operators(i)
    if file.OperatorCodes(operator.OpcodeIndex()).BuiltinCode() in products:
        print(names[graph.Tensors(operator.Inputs(1)).Type()])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_litert_computes_what_the_model_does(tmp_path: Path, name: str):
    need(litert.LITERT)
    model = untrained(model_config(name, **MODELS[name]))
    images = np.random.default_rng(1).normal(size=(1, *model.image_shape))
    request = Request(model=model, batch=1)
    litert.LiteRTFile().write(request, tmp_path / "file")
    found = litert.LiteRTFile().load(tmp_path / "file", request)(
        images.astype(np.float32)
    )
    expected = np.asarray(jax.jit(model.forward)(*model.placed, images))
    # Float32 sums in another order.
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("lenet", 1),
        # Sums of arrays are computed with fixed-point numbers, so that some are another
        # integer, and of random weights it changes the outputs by some steps.
        ("resnet18", 2),
        ("mobilenet_v2", 5),
    ],
)
def test_a_model_in_8_bits_is_integers_in_litert(tmp_path: Path, name: str, steps: int):
    """All products are, and outputs are those of the model to some steps."""
    need(litert.LITERT)
    floats = untrained(model_config(name, **MODELS[name]))
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (16, *floats.image_shape), dtype=np.uint8)
    model = quantize(floats, pixels, pixels[:8], "mse").model
    request = Request(model=model, precision="int8", batch=1)
    litert.LiteRTFile().write(request, tmp_path / "file")
    run = litert.LiteRTFile().load(tmp_path / "file", request)
    # No pixels: 255 levels of a channel may lie between two integers of another.
    images = rng.normal(size=pixels.shape).astype(np.float32)
    found = np.concatenate([run(image[None]) for image in images])
    expected = np.asarray(jax.jit(model.forward)(*model.placed, images))
    ends = by_path(model.model_state)
    low, high = (ends[f"head/linear/output_range/{end}"] for end in ("low", "high"))
    away = np.abs(found - expected) / (float(high - low) / 255)
    assert (away <= 1.001 * steps).mean() >= 0.98
    kinds = operators(tmp_path / "file")
    assert kinds and set(kinds) == {"INT8"}, kinds


def operators(path: Path) -> list[str]:
    """Return the type of the kernel of each product of a file."""
    python = str(litert.LITERT.find())
    told = subprocess.run(
        [python, "-c", KERNELS, str(path)], check=True, capture_output=True, text=True
    )
    return told.stdout.split()


@pytest.mark.exhaustive
def test_export_writes_a_file_of_litert(digits_run: Path, tmp_path: Path, capsys: Any):
    need(litert.LITERT)
    out, workdir = tmp_path / "model.tflite", str(digits_run)
    words = ["export", "--workdir", workdir, "--format", "litert", "--out", str(out)]
    capsys.readouterr()
    assert main([*words, "--include-preprocessing"]) == 0
    shown = capsys.readouterr().out.replace("│", " ")
    assert "the same class for 100.0%" in " ".join(shown.split())
    model = load_model(workdir)
    pixels = read_test()[0][:8]
    run = litert.LiteRTFile().load(
        out, Request(model=model, batch=1, preprocessing=True)
    )
    found = np.concatenate([run(image[None]) for image in pixels])
    np.testing.assert_allclose(found, model.predict(pixels), atol=1e-5)
    python = str(litert.LITERT.find())
    told = subprocess.run(
        [python, "-c", READ, str(out)], check=True, capture_output=True, text=True
    ).stdout
    assert (
        "{'serving_default': {'inputs': ['images'], 'outputs': ['probabilities']}}"
        in (told)
    )
    assert "['0', '1', '2'" in told and "[1, 8, 8, 1]" in told
    rows = {
        "--precision fp16": "--format litert supports fp32, int8; fp16 needs ",
        "--precision int8": "quantize the model with python main.py quantize",
        "--batch dynamic": "has a fixed batch size",
    }
    # The program of the page.
    page = (ROOT / "docs" / "litert.md").read_text()
    (program,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "ai_edge_litert" in block
    )
    np.save(tmp_path / "images.npy", pixels)
    shown = subprocess.run(
        [python, "-c", program.replace("digits.tflite", out.name), "images.npy"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    ).stdout
    numbers = [float(x) for x in shown.strip("[]\n ").split()]
    np.testing.assert_allclose(numbers, found[0], atol=1e-4)
    for more, message in rows.items():
        place = ["--out", str(tmp_path / "other")]
        assert main([*words[:-2], *place, *more.split()]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.exhaustive
def test_what_litert_cannot_do_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No environment, a program that it does not convert, a file that is none."""
    need(litert.LITERT)
    model = untrained(LeNetConfig())
    request = Request(model=model, batch=1)
    (tmp_path / "none").write_bytes(b"no file of LiteRT")
    run = litert.LiteRTFile().load(tmp_path / "none", request)
    with pytest.raises(ExportError, match="LiteRT cannot run the file"):
        run(np.zeros((1, *model.image_shape), np.float32))

    def sorted_outputs(self: Any, *arguments: Any) -> Any:
        return jax.lax.linalg.qr(arguments[2][0, :, :, 0])[0]

    monkeypatch.setattr(Request, "apply", sorted_outputs)
    monkeypatch.setattr(
        Request, "function", lambda self, folded: lambda x: self.apply(None, None, x)
    )
    with pytest.raises(
        UserError, match="the LiteRT converter does not support this model"
    ):
        litert.LiteRTFile().write(request, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    monkeypatch.setenv("JAXTRAIN_LITERT", str(tmp_path))
    with pytest.raises(UserError, match=r"create \.venv-litert with `make litert`"):
        export_lib.check_format("litert", None)
