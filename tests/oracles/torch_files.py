"""Write small files of `torch.save`, which our reader is tested on.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.torch_files

`tests/stored/torch` then has tensors of every dtype, shared, strided and empty ones, in
both formats; a state dict as data parallel training and a training script save it; the
values of all as JSON; and files with code, which PyTorch's own reader would run.

`tiny` is a model of PyTorch that computes what our `convnet` of width 0.125 does, with
what it puts out for `tests.helpers.seeded.images(8)`.
"""

import collections
import json
import os
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from safetensors.torch import save_file  # pyright: ignore[reportMissingImports]

from tests.helpers import seeded

FOLDER = Path(__file__).parents[1] / "stored" / "torch"
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16")


def tensors() -> dict[str, Any]:
    """Return tensors of all kinds that a state dict may have."""
    torch.manual_seed(0)
    found: dict[str, Any] = collections.OrderedDict()
    for name in (*DTYPES, "int8", "uint8"):
        found[name] = (20 * torch.rand(2, 3)).to(getattr(torch, name))
    found["bool"] = torch.tensor([True, False, True])
    shared = torch.arange(24, dtype=torch.float32)
    found["whole"] = shared.view(4, 6)
    found["transposed"] = shared.view(4, 6).t()
    found["part"] = shared[5:11]
    found["every_third"] = shared[1::3]
    found["channels_last"] = torch.rand(2, 3, 2, 2).contiguous(
        memory_format=torch.channels_last
    )
    found["scalar"] = torch.tensor(7)
    found["empty"] = torch.zeros(0, 3)
    found["parameter"] = torch.nn.Parameter(torch.rand(3))
    return found


def state_dict() -> dict[str, Any]:
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    return layers.state_dict()


class Runs:
    """What runs a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any):
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class Tiny(torch.nn.Module):
    """Two blocks of convolution, batch norm, ReLU and pool, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(8)
        self.fc = torch.nn.Linear(32, 5)

    def forward(self, x: Any) -> Any:
        for conv, norm in ((self.conv1, self.bn1), (self.conv2, self.bn2)):
            x = torch.nn.functional.max_pool2d(norm(conv(x)).relu(), 2)
        return self.fc(x.flatten(1))


def write_tiny() -> None:
    model = Tiny().eval()
    filled = {
        k: torch.from_numpy(seeded.weights(k, tuple(x.shape)))
        for k, x in model.state_dict().items()
        if not k.endswith("num_batches_tracked")
    }
    model.load_state_dict(filled, strict=False)
    save("tiny", model.state_dict())
    save_file(model.state_dict(), FOLDER / "tiny.safetensors")
    images = torch.from_numpy(seeded.images(8).transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        logits = model.double()(images.double())
    (FOLDER / "tiny.json").write_text(json.dumps(logits.tolist()) + "\n")


def save(name: str, value: Any) -> None:
    torch.save(value, FOLDER / f"{name}.pth")
    legacy = {"_use_new_zipfile_serialization": False}
    torch.save(value, FOLDER / f"{name}_legacy.pth", **legacy)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    write_tiny()
    found, state = tensors(), state_dict()
    save("tensors", found)
    save("state", state)
    module = {f"module.{k}": x for k, x in state.items()}
    save("container", {"epoch": 3, "lr": 0.1, "model": module, "optimizer": {}})
    touch = "touch THE_CODE_RAN"
    save("system", {**state, "0.weight": Runs(os.system, touch)})
    save(
        "eval", {**state, "0.weight": Runs(eval, f"__import__('os').system({touch!r})")}
    )
    save("nested", {"model": state, "more": [{"a": (1, Runs(os.system, touch))}]})
    values = {
        name: {
            k: {"dtype": str(x.dtype)[6:], "values": x.tolist()} for k, x in one.items()
        }
        for name, one in (("tensors", found), ("state", state))
    }
    (FOLDER / "values.json").write_text(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
