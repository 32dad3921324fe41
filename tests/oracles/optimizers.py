"""Makes tests/stored/optimizers.json: steps of optimizers by their authors' packages.

In an environment with torch, schedulefree, prodigyopt and dadaptation (2.13.0, 1.4.1,
1.1.2 and 3.2 made what is stored):

    python tests/oracles/optimizers.py tests/stored/optimizers.json

All in float64. Weights are a kernel, which decays, and a bias, which does not; the
gradient at p is 0.3 (p - target) and noise, all of which are in the file. Of the
schedule-free optimizers, which warm up over `WARMUP` steps, what is stored is what they
evaluate.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from dadaptation import DAdaptAdam  # pyright: ignore
from prodigyopt import Prodigy  # pyright: ignore
from schedulefree import AdamWScheduleFree, SGDScheduleFree  # pyright: ignore

SHAPES = {"kernel": (3, 4), "bias": (4,)}
STEPS, WARMUP, DECAY = 20, 4, 0.125
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "schedule_free_sgd": (
        SGDScheduleFree,
        {"lr": 0.5, "momentum": 0.75, "warmup_steps": WARMUP},
    ),
    "schedule_free_adamw": (
        AdamWScheduleFree,
        {"lr": 0.125, "betas": (0.75, 0.875), "eps": 0.125, "warmup_steps": WARMUP},
    ),
    "prodigy": (
        Prodigy,
        {"lr": 1.0, "betas": (0.75, 0.875), "use_bias_correction": True, "d0": 1e-6},
    ),
    "dadapt_adamw": (
        DAdaptAdam,
        {
            "lr": 1.0,
            "betas": (0.75, 0.875),
            "use_bias_correction": True,
            "decouple": True,
            "d0": 1e-6,
        },
    ),
}
PLATEAU = [5, 4, 4, 4.5, 4.1, 3, 3, 3.5, 3.1, 3.2, 3, 2.9, 2.95, 3, 3, 3, 2.95, 1, 0.5]


def run(name: str, data: dict[str, Any]) -> list[Any]:
    """Return the weights after each step, flat, the kernel first."""
    make, options = CASES[name]
    params = [torch.tensor(data["first"][n], dtype=torch.float64) for n in SHAPES]
    params = [p.requires_grad_() for p in params]
    groups = [
        {"params": [p], "weight_decay": DECAY * (p.ndim > 1), "lr": options["lr"]}
        for p in params
    ]
    optimizer = make(groups, **options)
    found = []
    for step in range(STEPS):
        if hasattr(optimizer, "train"):
            optimizer.train()
        for p, n in zip(params, SHAPES, strict=True):
            target, noise = (
                torch.tensor(x, dtype=torch.float64)
                for x in (data["target"][n], data["noise"][n][step])
            )
            p.grad = 0.3 * (p.detach() - target) + noise
        optimizer.step()
        if hasattr(optimizer, "eval"):
            optimizer.eval()
        found.append([x for p in params for x in p.detach().ravel().tolist()])
    return found


def plateau() -> list[float]:
    """Return the factor on the rate after each evaluation of `PLATEAU`."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=2, threshold=0.0
    )
    found = []
    for loss in PLATEAU:
        schedule.step(loss)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def main(path: str) -> None:
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {
        "first": {n: rng.normal(size=s).tolist() for n, s in SHAPES.items()},
        "target": {n: rng.normal(size=s).tolist() for n, s in SHAPES.items()},
        "noise": {
            n: (0.1 * rng.normal(size=(STEPS, *s))).tolist() for n, s in SHAPES.items()
        },
    }
    data["decay"], data["warmup"] = DECAY, WARMUP
    data["steps"] = {name: run(name, data) for name in CASES}
    data["plateau"] = {"losses": PLATEAU, "factors": plateau()}
    Path(path).write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
