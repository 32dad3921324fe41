"""Write which models of timm and torchvision have the same arrays as those we know.

Run it in an environment of its own, with PyTorch, timm 1.0 and torchvision:

    python -m tests.oracles.alike

The names and shapes of the arrays of every model of both libraries are compared with
the digests in `tests/stored/zoo`, on PyTorch's meta device, which allocates nothing.
What has the arrays of a known model computes, with the weights of
`tests.helpers.seeded`, the logits of that file too, or it is another function. The file
that is written, `jaxtrain/models/weights/alike.json`, has for each known model both
lists.
"""

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from tests.helpers import seeded

# torchvision's build for a GPU does not load its operators beside a CPU's PyTorch, and
# fails to describe these two, which no classifier uses.
with contextlib.suppress(RuntimeError):
    detection = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        form = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        detection.define(form)

import timm  # pyright: ignore[reportMissingImports]
import torchvision  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "tests" / "stored" / "zoo"
PATH = ROOT / "jaxtrain" / "models" / "weights" / "alike.json"
NUM_CLASSES = 10
# Of the largest logit, in float64: the files have float64's digits.
TOLERANCE = 1e-9


def architectures() -> Iterator[tuple[str, str]]:
    for name in timm.list_models():
        yield "timm", name
    for name in torchvision.models.list_models(module=torchvision.models):
        yield "torchvision", name


def create(library: str, name: str) -> Any:
    if library == "timm":
        return timm.create_model(name, num_classes=NUM_CLASSES)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, num_classes=NUM_CLASSES, **options)


def shapes_of(model: Any) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(x.shape)
        for name, x in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def digest_of(library: str, name: str) -> str | None:
    """Return the digest of the arrays of a model; None if it cannot be created."""
    try:
        try:
            with torch.device("meta"):
                model = create(library, name)
        # torchvision's RegNets compute the depths of their stages with tensors.
        except NotImplementedError:
            model = create(library, name)
    except Exception as error:
        print(f"{library}:{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    return seeded.digest(shapes_of(model))


def logits_of(library: str, name: str, size: int) -> Any:
    """Return what a model puts out in float64 for the images of `seeded`."""
    model = create(library, name).eval()
    filled = {
        k: torch.from_numpy(seeded.weights(k, s)) for k, s in shapes_of(model).items()
    }
    model.load_state_dict(filled, strict=False)
    images = torch.from_numpy(seeded.images(size).transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        return model.double()(images.double())


def is_same(library: str, name: str, known: dict[str, Any]) -> bool:
    """Whether a model computes the logits of a known one."""
    try:
        logits = logits_of(library, name, known["image_size"])
    except Exception as error:
        print(f"{library}:{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return False
    expected = torch.tensor(known["logits"], dtype=torch.float64)
    error = (logits - expected).abs().max() / expected.abs().max()
    print(f"{library}:{name}: {float(error):.1e}", file=sys.stderr, flush=True)
    return bool(error <= TOLERANCE)


def main() -> None:
    warnings.simplefilter("ignore")
    known: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(ZOO.glob("*.json")):
        library, _, name = path.stem.partition(".")
        if library in ("timm", "torchvision"):
            entry = json.loads(path.read_text())
            known.setdefault(entry["digest"], {})[f"{library}:{name}"] = entry
    found: dict[str, dict[str, list[str]]] = {}
    num = 0
    for library, name in architectures():
        num += 1
        for key, entry in known.get(digest_of(library, name) or "", {}).items():
            if key != f"{library}:{name}":
                kind = "same" if is_same(library, name, entry) else "other"
                lists = found.setdefault(key, {"same": [], "other": []})
                lists[kind].append(f"{library}:{name}")
    about = {
        "timm": timm.__version__,
        "torchvision": torchvision.__version__.partition("+")[0],
    }
    written = {
        "versions": about,
        "num_architectures": num,
        "models": {key: found[key] for key in sorted(found)},
    }
    PATH.write_text(json.dumps(written, indent=1) + "\n")
    print(json.dumps({"architectures": num, "models": len(found)}))


if __name__ == "__main__":
    main()
