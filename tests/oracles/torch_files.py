"""Write a small model of PyTorch, `tests/stored/torch/tiny.safetensors`.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.torch_files

It computes what our `convnet` of width 0.125 does; `tiny.json` has what it puts out for
`tests.helpers.seeded.images(8)`.
"""

import json
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from safetensors.torch import save_file  # pyright: ignore[reportMissingImports]

from tests.helpers import seeded

FOLDER = Path(__file__).parents[1] / "stored" / "torch"


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


def main() -> None:
    model = Tiny().eval()
    filled = {
        k: torch.from_numpy(seeded.weights(k, tuple(x.shape)))
        for k, x in model.state_dict().items()
        if not k.endswith("num_batches_tracked")
    }
    model.load_state_dict(filled, strict=False)
    save_file(model.state_dict(), FOLDER / "tiny.safetensors")
    images = torch.from_numpy(seeded.images(8).transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        logits = model.double()(images.double())
    (FOLDER / "tiny.json").write_text(json.dumps(logits.tolist()) + "\n")


if __name__ == "__main__":
    main()
