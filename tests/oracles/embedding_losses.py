"""Write what PyTorch computes of the losses of embeddings, and their gradients.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.embedding_losses

ArcFace is written with the angles themselves; the contrastive loss as in `losses.py` of
HobbitLong/SupContrast, without its factor of temperature over base temperature.
"""

import json
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from tests.helpers.embeddings import LABEL, SETTINGS, centres, outputs

PATH = Path(__file__).parents[1] / "stored" / "torch" / "embedding_losses.json"


def arcface() -> dict[str, Any]:
    """Return losses, and the gradients of their mean by outputs and centres."""
    x = torch.tensor(outputs(), requires_grad=True)
    w = torch.tensor(centres(), requires_grad=True)
    label, scale = torch.tensor(LABEL), SETTINGS["scale"]
    cosines = functional.normalize(x) @ functional.normalize(w, dim=0)
    true = functional.one_hot(label, w.shape[1]).bool()
    turned = torch.cos(torch.arccos(cosines) + SETTINGS["margin"])
    logits = scale * torch.where(true, turned, cosines)
    losses = functional.cross_entropy(logits, label, reduction="none")
    losses.mean().backward()
    return {"losses": losses, "of_outputs": x.grad, "of_centres": w.grad}


def contrastive() -> dict[str, Any]:
    """Return losses, and the gradient of their mean by outputs."""
    x, label = torch.tensor(outputs(), requires_grad=True), torch.tensor(LABEL)
    units = functional.normalize(x)
    similar = units @ units.T / SETTINGS["temperature"]
    similar = similar - similar.max(dim=1, keepdim=True).values.detach()
    others = 1 - torch.eye(len(label), dtype=x.dtype)
    alike = (label[:, None] == label[None]) * others
    logs = similar - torch.log((torch.exp(similar) * others).sum(1, keepdim=True))
    num = alike.sum(1)
    losses = -(alike * logs).sum(1) / torch.where(num < 1, 1, num)
    losses.mean().backward()
    return {"losses": losses, "of_outputs": x.grad}


if __name__ == "__main__":
    found = {"arcface": arcface(), "contrastive": contrastive()}
    values = {n: {k: x.tolist() for k, x in of.items()} for n, of in found.items()}
    PATH.write_text(json.dumps(values, indent=1) + "\n")
