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


def train(imitation: Any) -> list[float]:
    """Return the loss before each of 20 steps on all images.

    Args:
      imitation: Loss of the outputs, given the teacher's.
    """
    images, _ = labelled.examples()
    labels = torch.from_numpy(labelled.classes()).long()
    teacher = make_teacher()
    with torch.no_grad():
        theirs = normalised(images, labelled.TEACHER_MEAN, labelled.TEACHER_STD)
        said = teacher(theirs)
    pixels = normalised(images, labelled.MEAN, labelled.STD)
    model = Tiny()
    model.load_state_dict(load_file(FOLDER / "tiny.safetensors"))
    model.double().train()
    optimizer = torch.optim.SGD(model.parameters(), labelled.RATE, momentum=0.9)
    found, share = [], labelled.SHARE
    for _ in range(labelled.STEPS):
        logits = model(pixels)
        own = F.cross_entropy(logits, labels)
        loss = (1 - share) * own + share * imitation(logits, said)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main() -> None:
    found = {f.__name__: train(f) for f in (soft, hard)}
    (FOLDER / "taught.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
