"""Arrays in files, of NumPy and of MNIST: what is read, and what is wrong."""

import gzip
import io
import os
import resource
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import Config, DataConfig
from jaxtrain.data import array_files
from jaxtrain.data.sources import load
from jaxtrain.errors import UserError
from jaxtrain.trainer import data_checks
from tests.helpers.images import load_images, read_all
from tests.helpers.needs import fashion_mnist_files
from tests.helpers.rows import each_row


def random(num: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (num, *shape), np.uint8)


def pair(num: int = 4, *shape: int, suffix: str = "") -> dict[str, Any]:
    label = np.arange(num, dtype=np.int64) % 2
    return {f"image{suffix}": random(num, *(shape or (3, 5))), f"label{suffix}": label}


# --- arrays: -------------------------------------------------------------------------


@each_row("save", [np.savez, np.savez_compressed])
@each_row("shape", [(6, 4), (6, 4, 3)])
def test_arrays(tmp_path: Path, save: Any, shape: tuple[int, ...]):
    arrays = pair(40, *shape)
    arrays |= pair(10, *shape, suffix="_test") | pair(6, *shape, suffix="_validation")
    arrays["label"] = arrays["label"].astype(np.uint8)
    save(tmp_path / "set.npz", **arrays)
    splits = load_images(source=f"arrays:{tmp_path}/set.npz")
    named = {"": splits.train, "_test": splits.test, "_validation": splits.validation}
    for suffix, source in named.items():
        assert source is not None
        batch, image = read_all(source), arrays[f"image{suffix}"]
        assert (batch["image"] == image.reshape(*image.shape[:3], -1)).all()
        assert (batch["target"] == arrays[f"label{suffix}"]).all()
    assert splits.train.facts["class_names"] == ("0", "1")


def test_labels_that_leave_numbers_out(tmp_path: Path):
    label = np.array([7, 300, 7, -1 + 2**40])
    np.savez(tmp_path / "set.npz", image=random(4, 3, 3), label=label)
    fields: dict[str, Any] = {"test_split": "train", "allow_overlap": True}
    source = f"arrays:{tmp_path}/set.npz"
    train = load_images(source=source, validation_fraction=0, **fields).train
    assert train.facts["class_names"] == ("7", "300", "1099511627775")
    assert read_all(train)["target"].tolist() == [0, 1, 0, 2]


def test_the_digest_is_of_what_the_arrays_hold(tmp_path: Path):
    arrays, digests = pair(20), []
    changed = {**arrays, "image": arrays["image"] ^ 1}
    swapped = {**arrays, "label": arrays["label"][::-1].copy()}
    for save, some in (
        (np.savez, arrays),
        (np.savez_compressed, arrays),
        (np.savez, changed),
        (np.savez, swapped),
    ):
        save(tmp_path / "set.npz", **some)
        source = load_images(source=f"arrays:{tmp_path}/set.npz").train
        digests.append(source.facts["digest"])
    assert digests[0] == digests[1] and len(set(digests)) == 3


class Code:
    """Would be run by whoever unpickles it."""

    def __reduce__(self):
        return os._exit, (99,)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def npz(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def saved(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def header(shape: str, kind: str = "|u1", order: str = "False") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}}}"


def with_label(image: bytes) -> bytes:
    return npz(image=image, label=npy(header("(4,)"), b"\0\1\0\1"))


WHOLE = saved(**pair())
NPZ: list[tuple[bytes, str]] = [
    (b"", "not an .npz file, or damaged"),
    (WHOLE[:-40], "not an .npz file, or damaged"),
    (WHOLE[:150] + bytes([WHOLE[150] ^ 1]) + WHOLE[151:], "damaged|cannot be read"),
    (npz(), "found no image, label"),
    (saved(**pair(), image_test=random(2, 3, 5)), "found no label_test"),
    (
        saved(image=np.zeros((4, 3, 3)), label=[0, 1, 0, 1]),
        "dtype float64: expected uint8",
    ),
    (
        saved(image=random(4, 3, 3), label=[0, 1, 0]),
        r"\(4, 3, 3\) and label.npy \(3,\)",
    ),
    (saved(image=random(4, 3, 3), label=["a", "b"] * 2), "is <U1, expected integers"),
    (
        saved(image=random(4, 3, 3), label=[0, 1, 0, -2]),
        "contains -2: expected class indices",
    ),
    (saved(image=random(4, 3, 3), label=[0, 0, 0, 0]), r"has only one class \(0\)"),
    (
        saved(image=random(4, 9), label=[0, 1] * 2),
        r"shape \(4, 9\): expected \(N, H, W\)",
    ),
    (saved(image=random(4, 0, 3), label=[0, 1] * 2), "all sizes above 0"),
    (saved(**pair(4, 3, 32, 32)), "with at most 4 channels"),
    (saved(image=np.array([Code()] * 4), label=[0, 1] * 2), "contains Python objects"),
    (
        saved(image=np.asfortranarray(random(4, 3, 3)), label=[0, 1] * 2),
        "in Fortran order",
    ),
    (
        with_label(npy(header("(4, 3, 3)"), b"\0" * 35)),
        "declares 1.. bytes, but has 1.. unc",
    ),
    (with_label(npy(header("(4, -3, -3)"), b"\0" * 36)), "the shape is .4, -3, -3."),
    (with_label(npy("__import__('os')._exit(99)")), "header of .* cannot be read"),
]


@each_row(("data", "message"), NPZ)
def test_files_that_are_wrong(tmp_path: Path, data: bytes, message: str):
    (tmp_path / "set.npz").write_bytes(data)
    with pytest.raises(UserError, match=message):
        load_images(source=f"arrays:{tmp_path}/set.npz")


@each_row("kind", ["missing", "folder", "pipe"])
def test_what_is_no_file(tmp_path: Path, kind: str):
    path = tmp_path / "set.npz"
    if kind != "missing":
        path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(
        UserError, match=r"does not exist|not a regular file|Is a directory"
    ):
        load_images(source=f"arrays:{path}")


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_more_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    np.savez_compressed(tmp_path / "set.npz", **pair(20, 8, 8))
    write_idx(tmp_path, pair(20, 8, 8), packed=True)
    monkeypatch.setattr(array_files, "MEMORY_PART", 1e-12)
    for source in (f"arrays:{tmp_path}/set.npz", f"idx:{tmp_path}"):
        with pytest.raises(
            UserError, match="contains 1,280 bytes of images, more than"
        ):
            load_images(source=source)


def test_a_bomb_does_not_fill_the_memory(tmp_path: Path):
    """Each unpacks to 2 GB of zeros; the header tells of what is not there."""
    buffer, block = io.BytesIO(), bytes(2**24)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("label.npy", npy(header("(4,)"), b"\0\1\0\1"))
        with file.open("image.npy", "w", force_zip64=True) as image:
            image.write(npy(header("(4, 3, 3)"), b"\0" * 36))
            for _ in range(16):
                image.write(block)
    (tmp_path / "set.npz").write_bytes(buffer.getvalue())
    write_idx(tmp_path, pair(), packed=True)
    with gzip.open(tmp_path / "train-images-idx3-ubyte.gz", "ab", 1) as file:
        for _ in range(16):
            file.write(block)
    before = peak_bytes()
    with pytest.raises(UserError, match=r"has 268,\d+,\d+ uncompressed"):
        load_images(source=f"arrays:{tmp_path}/set.npz")
    with pytest.raises(UserError, match="data after the last example"):
        load_images(source=f"idx:{tmp_path}")
    assert peak_bytes() - before < 2**26


@each_row(
    ("label", "targets", "names"),
    [
        (np.array([[0, 1], [1, 1], [-1, 0], [1, 0]]), (), ("0", "1")),
        (np.array([[0.5, 1], [1, np.nan]] * 2), ("a", "b"), ("a", "b")),
        (np.array([1.5, 2, 3, 4]), ("size",), ("size",)),
        (np.array([1, 0, 0, 1]), ("there",), ("there",)),
    ],
)
def test_columns_of_arrays(
    tmp_path: Path, label: np.ndarray, targets: tuple[str, ...], names: tuple[str, ...]
):
    np.savez(tmp_path / "set.npz", **{**pair(4), "label": label}, **pair_of(label[:2]))
    source = f"arrays:{tmp_path}/set.npz"
    splits = load_images(source=source, targets=targets, validation_fraction=0)
    expected = label.reshape(4, -1).astype(np.float32)
    np.testing.assert_array_equal(read_all(splits.train)["target"], expected)
    assert splits.train.facts["target_names"] == names
    found = splits.train.all_targets()
    assert found is not None and found.dtype == np.float32


CLASSES = np.array([2, 0, 1, 2])


@each_row(
    "label",
    [
        CLASSES[:, None].astype(np.uint8),  # As Keras has CIFAR-10's.
        np.eye(3, dtype=np.int64)[CLASSES],
        np.eye(3)[CLASSES],
        np.eye(3)[CLASSES] == 1,
    ],
)
def test_classes_in_columns(tmp_path: Path, label: np.ndarray):
    np.savez(tmp_path / "set.npz", **{**pair(4), "label": label}, **pair_of(label[:2]))
    fields: dict[str, Any] = {"source": f"arrays:{tmp_path}/set.npz"}
    splits = load_images(**fields, validation_fraction=0)
    assert read_all(splits.train)["target"].tolist() == CLASSES.tolist()
    assert read_all(splits.test)["target"].tolist() == [2, 0]
    assert splits.train.facts["class_names"] == ("0", "1", "2")
    # With names they are columns, whatever they hold.
    names = tuple("abc"[: label.shape[1]])
    splits = load_images(**fields, validation_fraction=0, targets=names)
    np.testing.assert_array_equal(read_all(splits.train)["target"], label)


@each_row(
    ("label", "test", "message"),
    [
        (np.eye(3)[CLASSES], np.array([[1, 1, 0.0]] * 2), "are 3 columns of numbers"),
        (np.full((4, 4), 0.25), np.eye(4)[:2], r"4 classes \(soft labels\)"),
        (np.array([[0.0], [1], [2], [0]]), np.zeros((2, 1)), "are 1 column of numbers"),
    ],
)
def test_columns_that_are_no_classes(
    tmp_path: Path, label: np.ndarray, test: np.ndarray, message: str
):
    np.savez(tmp_path / "set.npz", **{**pair(4), "label": label}, **pair_of(test))
    data = DataConfig(source=f"arrays:{tmp_path}/set.npz", validation_fraction=0)
    config = Config(data=data)
    with pytest.raises(UserError, match=message):
        data_checks.task_of_data(config, load(config.data, 0))


def pair_of(label: np.ndarray) -> dict[str, Any]:
    return {**pair(len(label), suffix="_test"), "label_test": label}


def test_columns_that_do_not_fit(tmp_path: Path):
    label = np.zeros((4, 3))
    np.savez(tmp_path / "set.npz", **{**pair(4), "label": label}, **pair_of(label))
    with pytest.raises(
        UserError, match=r"1 name, but the array `label` of .* has 3 columns"
    ):
        load_images(source=f"arrays:{tmp_path}/set.npz", targets=("a",))


# --- idx: ----------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + shape + array.astype(np.uint8).tobytes()


def write_idx(
    folder: Path, train: dict[str, np.ndarray], packed: bool, prefix: str = "train"
) -> None:
    for kind, array in (("images-idx3", "image"), ("labels-idx1", "label")):
        name, data = f"{prefix}-{kind}-ubyte", idx(train[array])
        if packed:
            name, data = f"{name}.gz", gzip.compress(data)
        (folder / name).write_bytes(data)
        (folder / f"._{name}").write_bytes(b"\0")


def test_idx(tmp_path: Path):
    train, test = pair(30, 7, 5), pair(8, 7, 5)
    write_idx(tmp_path, train, packed=True)
    write_idx(tmp_path, test, packed=False, prefix="t10k")
    splits = load_images(source=f"idx:{tmp_path}", validation_fraction=0)
    for source, expected in ((splits.train, train), (splits.test, test)):
        batch = read_all(source)
        assert (batch["image"][..., 0] == expected["image"]).all()
        assert (batch["target"] == expected["label"]).all()


def test_idx_without_a_test_split_and_with_dots_in_the_names(tmp_path: Path):
    write_idx(tmp_path, pair(40), packed=False)
    for path in tmp_path.iterdir():
        path.rename(path.with_name(path.name.replace("-idx", ".idx").upper()))
    splits = load_images(source=f"idx:{tmp_path}", validation_fraction=0)
    assert (len(splits.train), len(splits.test)) == (36, 4)


@pytest.mark.parametrize(
    "split",
    [
        pytest.param("test", marks=pytest.mark.slow),
        pytest.param("train", marks=pytest.mark.exhaustive),
    ],
)
def test_fashion_mnist_is_that_of_tfds(fashion_mnist_dir: str, split: str):
    """TFDS's files are in another order: the rows are compared sorted."""
    found = []
    sources: tuple[dict[str, Any], ...] = (
        {"source": "tfds:fashion_mnist", "data_dir": fashion_mnist_dir},
        {"source": f"idx:{fashion_mnist_files()}"},
    )
    for fields in sources:
        batch = read_all(getattr(load_images(validation_fraction=0, **fields), split))
        pixels = batch["image"].reshape(len(batch["image"]), -1)
        rows = np.c_[pixels, batch["target"].astype(np.uint8)]
        found.append(sorted(row.tobytes() for row in rows))
    assert len(found[0]) == {"train": 60_000, "test": 10_000}[split]
    assert found[0] == found[1]


HEADER = b"\0\0\x08\3" + struct.pack(">3I", 4, 3, 5)
IDX: list[tuple[str, bytes | None, str]] = [
    ("images-idx3", None, "train-images-idx3-ubyte.gz do not exist"),
    ("images-idx3", HEADER[:9], "header is truncated"),
    ("images-idx3", idx(random(4)), "magic number is 00000801, expected 00000803"),
    ("images-idx3", HEADER + bytes(59), "last 1 bytes of the array are missing"),
    ("images-idx3", HEADER + bytes(61), "data after the last example"),
    ("images-idx3", b"\0\0\x08\3" + b"\xff" * 12, "more than the file can contain"),
    ("labels-idx1", idx(np.zeros(5)), "the train split has 4 images, but 5 labels"),
]


@each_row(("kind", "data", "message"), IDX)
@each_row("packed", [False, True])
def test_idx_files_that_are_wrong(
    tmp_path: Path, kind: str, data: bytes | None, message: str, packed: bool
):
    write_idx(tmp_path, pair(), packed)
    path = tmp_path / f"train-{kind}-ubyte{'.gz' * packed}"
    if data is None:
        path.unlink()
    else:
        path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UserError, match=message):
        load_images(source=f"idx:{tmp_path}")
