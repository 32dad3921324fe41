"""Train a small network of PyTorch by SimCLR and BYOL; store the losses of the steps.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.view_steps

SimCLR's loss is the cross entropy of each view among all others; BYOL's is written with
squared differences, as in the paper, of a target with a moving average of the weights.
"""

import copy
import json
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from tests.helpers import views

PATH = Path(__file__).parents[1] / "stored" / "torch" / "views.json"


class Network(nn.Module):
    """The network, with a projection and a predictor."""

    def __init__(self):
        super().__init__()
        for name, sizes in views.DENSE.items():
            setattr(self, name, nn.Linear(*sizes))
        for name, channels in views.NORMS.items():
            setattr(self, name, nn.BatchNorm1d(channels))
        for name, kernel in views.kernels().items():
            layer = getattr(self, name)
            layer.weight.data = torch.tensor(kernel.T.copy())
            layer.bias.data.zero_()

    def forward(self, x: Any) -> tuple[Any, Any]:
        hidden = F.relu(self.stem_norm(self.stem(x.flatten(1))))
        outputs = self.head(hidden)
        projection = self.project(F.relu(self.project_norm(outputs)))
        wide = self.predict_norm(self.widen(projection))
        return projection, self.predict(F.relu(wide))


def simclr(network: Any, target: Any, x: Any) -> Any:
    del target
    units = F.normalize(network(x)[0])
    similar = units @ units.T / views.TEMPERATURE
    similar = similar.masked_fill(torch.eye(len(x), dtype=torch.bool), -torch.inf)
    return F.cross_entropy(similar, torch.arange(len(x)) ^ 1)


def byol(network: Any, target: Any, x: Any) -> Any:
    predicted = F.normalize(network(x)[1])
    with torch.no_grad():
        wanted = F.normalize(target(x)[0])
    first, second = slice(0, None, 2), slice(1, None, 2)
    losses = [
        (predicted[one] - wanted[other]).square().sum(1)
        for one, other in ((first, second), (second, first))
    ]
    return torch.cat(losses).mean()


def train(loss_of: Any) -> list[float]:
    """Return the loss before each of 20 steps."""
    network = Network().double()
    target = copy.deepcopy(network)
    optimizer = torch.optim.SGD(
        network.parameters(), views.RATE, momentum=views.MOMENTUM
    )
    found = []
    for step, x in enumerate(torch.tensor(views.images())):
        loss = loss_of(network, target, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay = min(views.DECAY, (1 + step) / (10 + step))
        pairs = zip(target.parameters(), network.parameters(), strict=True)
        for average, weight in pairs:
            average.data.mul_(decay).add_(weight.data, alpha=1 - decay)
        found.append(loss.item())
    return found


if __name__ == "__main__":
    losses = {"simclr": train(simclr), "byol": train(byol)}
    PATH.write_text(json.dumps(losses) + "\n")
