"""Train PyTorch's `Tiny` on what another one says; store the losses of the steps.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.teacher_steps
"""

import json
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from safetensors.torch import load_file  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from tests.helpers import labelled
from tests.oracles.torch_files import FOLDER, Tiny


def normalised(images: Any, mean: Any, std: Any) -> Any:
    mean, std = (torch.tensor(x, dtype=torch.float64) for x in (mean, std))
    pixels = (torch.from_numpy(images).double() / 255 - mean) / std
    return pixels.permute(0, 3, 1, 2)


def make_teacher() -> Any:
    teacher = Tiny()
    arrays = labelled.teacher_arrays(load_file(FOLDER / "tiny.safetensors"))
    teacher.load_state_dict({name: torch.from_numpy(x) for name, x in arrays.items()})
    return teacher.double().eval()


def soft(logits: Any, said: Any) -> Any:
    t = labelled.TEMPERATURE
    log_p, log_q = (F.log_softmax(x / t, 1) for x in (said, logits))
    return t**2 * F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def hard(logits: Any, said: Any) -> Any:
    return F.cross_entropy(logits, said.argmax(1))


def inside(model: Any, x: Any) -> list[Any]:
    """Return what both blocks of a model make of images."""
    found = []
    for conv, norm in ((model.conv1, model.bn1), (model.conv2, model.bn2)):
        x = F.max_pool2d(norm(conv(x)).relu(), 2)
        found.append(x)
    return found


def attention(ours: list[Any], theirs: list[Any]) -> Any:
    """Return what github.com/szagoruyko/attention-transfer computes, for one batch.

    There the mean over the channels; here their sum, which the norm makes the same.
    """
    pairs = zip(ours, theirs, strict=True)
    maps = [[F.normalize(x.pow(2).sum(1).flatten(1)) for x in pair] for pair in pairs]
    return sum((a - b).pow(2).mean() for a, b in maps)


def hint(ours: list[Any], theirs: list[Any]) -> Any:
    """Return what ridge regression leaves of the variance of the first block.

    The regressor of FitNets (arXiv:1412.6550), a 1x1 convolution with a bias, once it
    has converged.
    """

    def rows(x: Any) -> Any:
        x = x.movedim(1, -1).flatten(0, -2)
        return x - x.mean(0)

    x, y = rows(ours[0]), rows(theirs[0])
    with torch.no_grad():
        own = x.T @ x / len(x)
        ridge = labelled.RIDGE * own.trace() / len(own) * torch.eye(len(own))
        slopes = torch.linalg.solve(own + ridge, x.T @ y / len(x))
    return (y - x @ slopes).pow(2).mean() / y.pow(2).mean()


def train(imitation: Any, compare: Any = None, beta: float = 0.0) -> list[float]:
    """Return the loss before each of 20 steps on all images.

    Args:
      imitation: Loss of the outputs, given the teacher's.
      compare: Loss of the activations of both blocks, given the teacher's; None: none.
      beta: Its weight.
    """
    images, _ = labelled.examples()
    labels = torch.from_numpy(labelled.classes()).long()
    teacher = make_teacher()
    with torch.no_grad():
        theirs = normalised(images, labelled.TEACHER_MEAN, labelled.TEACHER_STD)
        said, seen = teacher(theirs), inside(teacher, theirs)
    pixels = normalised(images, labelled.MEAN, labelled.STD)
    model = Tiny()
    model.load_state_dict(load_file(FOLDER / "tiny.safetensors"))
    model.double().train()
    optimizer = torch.optim.SGD(model.parameters(), labelled.RATE, momentum=0.9)
    found, share = [], labelled.SHARE
    for _ in range(labelled.STEPS):
        ours = inside(model, pixels)
        logits = model.fc(ours[-1].flatten(1))
        own = F.cross_entropy(logits, labels)
        loss = (1 - share) * own + share * imitation(logits, said)
        if compare is not None:
            loss = loss + beta * compare(ours, seen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main() -> None:
    found = {f.__name__: train(f) for f in (soft, hard)}
    found["attention"] = train(soft, attention, labelled.ATTENTION)
    found["hint"] = train(soft, hint, labelled.HINT)
    (FOLDER / "taught.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
