"""A model of PyTorch, `tests/stored/torch/tiny`, that computes what our `convnet` does.

Written by `tests/oracles/torch_files.py`: its arrays, and what it puts out.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.weights.names import ArrayNames, after_flatten
from jaxtrain.weights.sources import WeightsSource
from tests.helpers import seeded

STORED = Path(__file__).parents[1] / "stored" / "torch"
FILE = STORED / "tiny.safetensors"
NAMES = ArrayNames(
    layers={
        "conv1": "conv1",
        r"conv(\d)": "conv{0}",
        r"norm(\d)": "bn{0}",
        "head/linear": "fc",
    },
    layouts={"head/linear/kernel": after_flatten(2)},
)
MEAN, STD = (0.5, 0.4, 0.3), (0.3, 0.2, 0.1)


def source(
    library: Any, architecture: str = "tiny", names: ArrayNames = NAMES
) -> WeightsSource:
    return WeightsSource(
        library,
        architecture,
        names,
        options={"width": 0.125},
        image_size=8,
        crop_pct=0.75,
        interpolation="bicubic",
        mean=MEAN,
        std=STD,
    )


def images() -> np.ndarray:
    """Return normalised images, float32 (2, 8, 8, 3)."""
    return seeded.images(8)


def logits() -> np.ndarray:
    """Return what PyTorch computes of them in float64, (2, 5)."""
    return np.array(json.loads((STORED / "tiny.json").read_text()))


def write_folder(
    folder: Path, weights: str = "model.safetensors", **fields: Any
) -> Path:
    """Write a folder in timm's form; `cfg_...` are fields of its pretrained_cfg."""
    folder.mkdir(parents=True)
    shutil.copy(FILE, folder / weights)
    about = {
        "input_size": [3, 8, 8],
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
        "crop_pct": 0.9,
        "interpolation": "bilinear",
        "first_conv": "conv1",
        "classifier": "fc",
    }
    about |= {k[4:]: v for k, v in fields.items() if k.startswith("cfg_")}
    config = {"architecture": "tiny", "num_classes": 5, "pretrained_cfg": about}
    config |= {k: v for k, v in fields.items() if not k.startswith("cfg_")}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_cache(cache: Path, repo: str, commit: str = 40 * "a") -> Path:
    """Write a repository as huggingface_hub has it in its cache, with a branch main."""
    root = cache / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    return write_folder(root / "snapshots" / commit)
