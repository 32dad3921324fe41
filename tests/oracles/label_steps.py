"""Train PyTorch's `Tiny` on several labels an image; store the losses of the steps.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.label_steps
"""

import json
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from safetensors.torch import load_file  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from tests.helpers import labelled
from tests.oracles.torch_files import FOLDER, Tiny


def binary_cross_entropy(logits: Any, labels: Any) -> Any:
    weights = torch.tensor(labelled.POSITIVE_WEIGHTS, dtype=torch.float64)
    return F.binary_cross_entropy_with_logits(
        logits, labels, pos_weight=weights, reduction="none"
    )


def asymmetric(logits: Any, labels: Any) -> Any:
    """Return what github.com/Alibaba-MIIL/ASL computes, with gradients of its weights.

    Its default leaves these out (`disable_torch_grad_focal_loss`).
    """
    p = torch.sigmoid(logits)
    absent = (1 - p + 0.05).clamp(max=1)
    losses = labels * torch.log(p) + (1 - labels) * torch.log(absent)
    return -losses * (1 - p * labels - absent * (1 - labels)) ** (4 * (1 - labels))


def train(loss: Any) -> list[float]:
    """Return the loss before each of 20 steps on all images."""
    images, targets = labelled.examples()
    mean, std = (
        torch.tensor(x, dtype=torch.float64) for x in (labelled.MEAN, labelled.STD)
    )
    pixels = (torch.from_numpy(images).double() / 255 - mean) / std
    labels = torch.from_numpy(targets).double()
    known = labels >= 0
    model = Tiny()
    model.load_state_dict(load_file(FOLDER / "tiny.safetensors"))
    model.double().train()
    optimizer = torch.optim.SGD(model.parameters(), labelled.RATE, momentum=0.9)
    found = []
    for _ in range(labelled.STEPS):
        logits = model(pixels.permute(0, 3, 1, 2))
        each = torch.where(known, loss(logits, labels.clamp(min=0)), 0.0)
        mean_loss = (each.sum(1) / known.sum(1)).mean()
        optimizer.zero_grad()
        mean_loss.backward()
        optimizer.step()
        found.append(mean_loss.item())
    return found


def main() -> None:
    found = {f.__name__: train(f) for f in (binary_cross_entropy, asymmetric)}
    (FOLDER / "labels.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
