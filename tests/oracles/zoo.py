"""Write what models of timm and torchvision put out, which ours are compared with.

Run it in an environment of its own, with PyTorch, timm 1.0, torchvision and, for a
model that neither has, pytorchcv:

    python -m tests.oracles.zoo timm:resnet18@97 torchvision:resnet18@97
    python -m tests.oracles.zoo pytorchcv:wrn28_10_cifar10@29

Each is given weights made from their names (`tests.helpers.seeded`), and computes in
float64 what it puts out for two images of the size that is given. A file of each in
`tests/stored/zoo` has that and a digest of the names and shapes of its arrays.
"""

import json
import sys
from pathlib import Path

import pytorchcv.model_provider  # pyright: ignore[reportMissingImports]
import timm  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
import torchvision  # pyright: ignore[reportMissingImports]

from tests.helpers import seeded

FOLDER = Path(__file__).parents[1] / "stored" / "zoo"
NUM_CLASSES = 10


def create(library: str, name: str):
    if library == "timm":
        return timm.create_model(name, num_classes=NUM_CLASSES)
    if library == "pytorchcv":
        return pytorchcv.model_provider.get_model(name, num_classes=NUM_CLASSES)
    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, num_classes=NUM_CLASSES, **options)


def write(library: str, name: str, size: int) -> None:
    model = create(library, name).eval()
    state = {
        k: x
        for k, x in model.state_dict().items()
        if not k.endswith("num_batches_tracked")
    }
    shapes = {k: tuple(x.shape) for k, x in state.items()}
    filled = {k: torch.from_numpy(seeded.weights(k, s)) for k, s in shapes.items()}
    model.load_state_dict(filled, strict=False)
    images = torch.from_numpy(seeded.images(size).transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        logits = model.double()(images.double()).numpy()
    # The two images must make a difference, or the comparison would show nothing.
    spread = abs(logits[0] - logits[1]).max() / abs(logits).max()
    print(f"{library}:{name} {logits.std():.3g}, of images {spread:.2f}")
    assert spread > 2e-3, "the images make no difference"
    found = {
        "num_arrays": len(shapes),
        "num_params": sum(p.numel() for p in model.parameters()),
        "digest": seeded.digest(shapes),
        "image_size": size,
        "logits": logits.tolist(),
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{library}.{name}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")


for argument in sys.argv[1:]:
    library, _, rest = argument.partition(":")
    name, _, size = rest.partition("@")
    write(library, name, int(size or 97))
