"""Write what torchvision's models of maps put out and how they train.

Run it in an environment of its own, with PyTorch and torchvision:

    python -m tests.oracles.maps fcn_resnet50@65 deeplabv3_resnet50@65 ...
    python -m tests.oracles.maps --train deeplabv3_resnet50

Each is given weights made from their names (`tests.helpers.seeded`) and computes in
float64. A file in `tests/stored/maps` has what it puts out for two images at some
pixels, and a digest of the names and shapes of its arrays; of training it has the
losses of 20 steps on all of four images.
"""

import argparse
import json
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]

# torchvision's build for a GPU does not load its operators beside a CPU's PyTorch.
detection = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    detection.define(
        f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    )

import torchvision  # noqa: E402 # pyright: ignore[reportMissingImports]

from tests.helpers import seeded  # noqa: E402
from tests.helpers.discs import CLASSES, discs  # noqa: E402

FOLDER = Path(__file__).parents[1] / "stored" / "maps"
NUM_CLASSES = 10
# Pixels of the outputs that are stored: every so many rows and columns.
EVERY = 13
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STEPS, SIZE, IMAGES = 20, 33, 4
# The rate is the same number in float32 and in float64.
LEARNING_RATE, MOMENTUM, AUX_WEIGHT = 2.0**-10, 0.9, 0.5


def create(name: str, num_classes: int):
    """Return a model with both heads, and the shapes of its arrays by name."""
    model = torchvision.models.get_model(
        name, num_classes=num_classes, aux_loss=True, weights_backbone=None
    )
    shapes = {
        k: tuple(x.shape)
        for k, x in model.state_dict().items()
        if not k.endswith("num_batches_tracked")
    }
    filled = {k: torch.from_numpy(seeded.weights(k, s)) for k, s in shapes.items()}
    model.load_state_dict(filled, strict=False)
    return model.double(), shapes


def write(name: str, found: dict) -> None:
    path = FOLDER / f"torchvision.{name}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")


def outputs(name: str, size: int) -> None:
    model, shapes = create(name, NUM_CLASSES)
    images = torch.from_numpy(seeded.images(size).transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        found = model.eval()(images.double())
    some = {k: x[:, :, ::EVERY, ::EVERY].permute(0, 2, 3, 1) for k, x in found.items()}
    logits = some["out"].numpy()
    spread = abs(logits[0] - logits[1]).max() / abs(logits).max()
    print(f"{name} {logits.std():.3g}, of images {spread:.2f}")
    assert spread > 2e-3, "the images make no difference"
    write(
        name,
        {
            "num_params": sum(p.numel() for p in model.parameters()),
            "digest": seeded.digest(shapes),
            "image_size": size,
            "every": EVERY,
            **{key: x.tolist() for key, x in some.items()},
        },
    )


def train(name: str) -> None:
    model, _ = create(name, CLASSES)
    for layer in model.train().modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    pixels, mask = discs(2 * IMAGES, SIZE)
    mean, std = (torch.tensor(x, dtype=torch.float64) for x in (MEAN, STD))
    x = (torch.from_numpy(pixels[:IMAGES]).double() / 255 - mean) / std
    x, target = x.permute(0, 3, 1, 2), torch.from_numpy(mask[:IMAGES]).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for _ in range(STEPS):
        found = model(x)
        parts = {
            k: torch.nn.functional.cross_entropy(y, target) for k, y in found.items()
        }
        loss = parts["out"] + AUX_WEIGHT * parts["aux"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"{name} {losses[-1]:.6f}", flush=True)
    write(f"{name}.training", {"losses": losses})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", help="NAME@PIXELS")
    parser.add_argument("--train")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for model in arguments.models:
        name, _, size = model.partition("@")
        outputs(name, int(size))
    if arguments.train:
        train(arguments.train)


if __name__ == "__main__":
    main()
