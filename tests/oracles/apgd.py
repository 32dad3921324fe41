"""Write what Auto-PGD finds, written down from its paper with PyTorch.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.apgd

One image at a time, with lists of all points, as algorithm 1 of arXiv:2003.01690 has
them: nothing in it is shared with `jaxtrain/plugins/robustness/apgd.py`.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from tests.helpers.attacked import EPSILONS, STEPS, arrays, logits, starts

PATH = Path(__file__).parents[1] / "stored" / "torch" / "apgd.json"


def attack(f: Any, x: Any, start: Any, norm: str, epsilon: float, n: int) -> Any:
    """Return x_max, f_max and the step lengths of all iterations, of one image."""

    def project(z: Any) -> Any:
        d = z - x
        if norm == "linf":
            d = d.clamp(-epsilon, epsilon)
        elif d.norm() > epsilon:
            d = d * epsilon / d.norm()
        return (x + d).clamp(0, 1)

    def slope(z: Any) -> Any:
        z = z.clone().requires_grad_()
        (g,) = torch.autograd.grad(f(z), z)
        return g.sign() if norm == "linf" else g / g.norm()

    p = [0.0, 0.22]
    while p[-1] < 1:
        p.append(p[-1] + max(p[-1] - p[-2] - 0.03, 0.06))
    w = [math.ceil(q * n - 1e-9) for q in p]

    eta, alpha, rho = [2 * epsilon], 0.75, 0.75
    xs = [start]
    xs.append(project(xs[0] + eta[0] * slope(xs[0])))
    fs = [f(z).item() for z in xs]
    # f_max and eta by iteration: that of the iteration's end, and of its step.
    best = xs[0] if fs[0] >= fs[1] else xs[1]
    maxima = [max(fs)]
    eta.append(eta[0])
    for k in range(1, n):
        z = project(xs[k] + eta[k] * slope(xs[k]))
        new = project(xs[k] + alpha * (z - xs[k]) + (1 - alpha) * (xs[k] - xs[k - 1]))
        value = f(new).item()
        if value > maxima[-1]:
            best = new
        maxima.append(max(maxima[-1], value))
        eta.append(eta[k])
        if k in w[1:]:
            last = w[w.index(k) - 1]
            rises = sum(fs[i + 1] > fs[i] for i in range(last, k))
            too_few = rises < rho * (k - last)
            # Not halved after iteration `last`, so that it made the step of this one.
            same = last == 0 or eta[last] == eta[last + 1]
            if too_few or (same and maxima[last] == maxima[k]):
                eta[k + 1] = eta[k] / 2
                new, value = best, maxima[-1]
        xs.append(new)
        fs.append(value)
    return best, maxima[-1], eta[:n]


def losses(values: dict[str, Any], i: int) -> dict[str, Any]:
    """Return the two losses of an image of shape (1, height, width, 1)."""
    label, target = values["labels"][i], values["targets"][i]

    def of(x: Any) -> Any:
        return logits(torch, x, values["first"], values["last"])[0]

    def ratio(x: Any) -> Any:
        z = of(x)
        ordered = torch.sort(z, descending=True).values
        below = ordered[0] - (ordered[2] + ordered[3]) / 2
        return -(z[label] - z[target]) / (below + 1e-12)

    return {"ce": lambda x: torch.logsumexp(of(x), 0) - of(x)[label], "dlr": ratio}


if __name__ == "__main__":
    values = {name: torch.tensor(x) for name, x in arrays().items()}
    found: dict[str, Any] = {}
    for norm, epsilon in EPSILONS.items():
        first = torch.tensor(starts(norm))
        for name in ("ce", "dlr"):
            results = [
                attack(
                    losses(values, i)[name],
                    values["images"][i : i + 1],
                    first[i : i + 1],
                    norm,
                    epsilon,
                    STEPS,
                )
                for i in range(len(first))
            ]
            found[f"{name}, {norm}"] = {
                "best": [r[0][0].tolist() for r in results],
                "loss": [r[1] for r in results],
                "sizes": [r[2] for r in results],
            }
    PATH.write_text(json.dumps(found) + "\n")
