"""Small data sets for the tests, and reading all of a split."""

import functools
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2

from jaxtrain.config import DataConfig
from jaxtrain.data.sources import Source, Splits, load

# An image file and a label.
Example = tuple[bytes, int]


def load_images(seed: int = 0, **fields) -> Splits:
    return load(DataConfig(**fields), seed)


def read_all(source: Source, **kwargs) -> dict[str, np.ndarray]:
    return source.read(np.arange(len(source)), **kwargs)


def on_canvases(batch: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the windows of a batch, (h, w, C) each, without what is beyond them."""
    sizes = np.ceil(batch["box"][:, 2:]).astype(int)
    return [
        image[:height, :width]
        for image, (width, height) in zip(batch["image"], sizes, strict=True)
    ]


def encode(pixels: np.ndarray, format: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format)
    return buffer.getvalue()


@functools.cache
def grey(value: int, height: int = 6, width: int = 4) -> bytes:
    return encode(np.full((height, width), value, np.uint8))


def write_tfds(
    root: Path,
    splits: Mapping[str, Sequence[Example]],
    shape: Sequence[int] = (6, 4, 1),
    label: str = "label",
) -> None:
    """Write the prepared set `tiny`, as TFDS lays it out; -1 is an unknown size."""
    folder = root / "tiny" / "1.0.0"
    folder.mkdir(parents=True)
    kind = "tensorflow_datasets.core.features"
    features = {
        "image": {
            "pythonClassName": f"{kind}.image_feature.Image",
            "image": {
                "dtype": "uint8",
                "shape": {"dimensions": [str(n) for n in shape]},
            },
        },
        label: {
            "pythonClassName": f"{kind}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": "3"},
        },
    }
    (folder / "features.json").write_text(
        json.dumps(
            {
                "pythonClassName": f"{kind}.features_dict.FeaturesDict",
                "featuresDict": {"features": features},
            }
        )
    )
    infos = []
    for name, examples in splits.items():
        path = folder / f"tiny-{name}.array_record-00000-of-00001"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for data, number in examples:
            example = tf_example_pb2.Example()  # pyright: ignore
            example.features.feature["image"].bytes_list.value.append(data)
            example.features.feature[label].int64_list.value.append(number)
            writer.write(example.SerializeToString())
        writer.close()
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        infos.append(
            {
                "name": name,
                "shardLengths": [str(len(examples))],
                "filepathTemplate": template,
            }
        )
    info = {
        "name": "tiny",
        "version": "1.0.0",
        "fileFormat": "array_record",
        "splits": infos,
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))


def tiny_splits(**more: Sequence[Example]) -> dict[str, Sequence[Example]]:
    train = [(grey(10 * i), i % 3) for i in range(12)]
    return {"train": train, "test": [(grey(200), 2), (grey(201), 1)], **more}


def write_folder(root: Path, files: Mapping[str, int]) -> None:
    """Write small grey PNGs of one value each."""
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(grey(value))
