"""Images with masks: how they are found, what their values are, where they go."""

import csv
import io
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from jaxtrain.config import DataConfig
from jaxtrain.data.augment.geometry import PaddedCrop
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.opening import complete, open_store
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.data.stores import describe_remarks
from jaxtrain.errors import UserError
from jaxtrain.plugins.segmentation.pixel_classes import PixelClasses, find_classes
from tests.helpers.images import encode, load_images, read_all
from tests.helpers.masked import NAMES, SIDE, shapes, write_masks
from tests.helpers.rows import each_row

CLASSES = PixelClasses(NAMES, None, "classes.txt")
COLOURS = ((0, 0, 0), (255, 255, 255), (200, 10, 30))
COLOURED = PixelClasses(NAMES, COLOURS, "classes.csv")
MASK = np.array([[0, 1, 2], [2, 1, IGNORED]], np.uint8)


def stored(pixels: np.ndarray | Image.Image, format: str = "PNG") -> StoredFile:
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    return StoredFile("mask.png", encode(np.asarray(picture), format))


def paletted(mask: np.ndarray) -> StoredFile:
    picture = Image.fromarray(mask, "P")
    picture.putpalette(np.random.default_rng(0).integers(0, 256, 768).tolist())
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return StoredFile("mask.png", buffer.getvalue())


# --- values of one mask --------------------------------------------------------------


@each_row(
    "mask",
    [
        stored(MASK),
        paletted(MASK),
        stored(MASK.astype(np.uint16)),
        stored(MASK, "TIFF"),
    ],
)
def test_numbers_are_read_as_they_were_stored(mask: StoredFile):
    found = CLASSES.numbers(mask, 100)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, MASK)


def test_colours_become_numbers():
    numbers = np.array([[0, 1, 2], [2, 1, 0]])
    colours = np.array(COLOURS, np.uint8)[numbers]
    for mask in (stored(colours), stored(colours, "TIFF")):
        np.testing.assert_array_equal(COLOURED.numbers(mask, 100), numbers)
    # Black and white may be stored as grey, or as one bit.
    grey = np.array([[0, 255]], np.uint8)
    for mask in (stored(grey), stored(Image.fromarray(grey).convert("1"))):
        np.testing.assert_array_equal(COLOURED.numbers(mask, 100), [[0, 1]])


@each_row(
    ("classes", "mask", "told"),
    [
        (CLASSES, stored(MASK + 1), "mask.png: the value 3 in column 2 of row 0"),
        (CLASSES, stored(np.array([[[0, 1, 2]]], np.uint8)), "the mask has colours"),
        (CLASSES, stored(MASK, "JPEG"), "JPEG compression may change"),
        (CLASSES, StoredFile("mask.png", b"x"), "mask.png: not an image"),
        (
            COLOURED,
            stored(np.full((2, 2, 3), 9, np.uint8)),
            "4 pixels have colours .* 9,9,9",
        ),
    ],
)
def test_other_values_are_refused(classes: PixelClasses, mask: StoredFile, told: str):
    with pytest.raises(UnreadableError, match=told):
        classes.numbers(mask, 100)


@each_row(
    ("text", "told"),
    [
        ("one", "has 1 lines: expected 2 to 255"),
        ("a\nb,1\n", "line 2 has 2 fields"),
        ("a\na\n", "line 2: a is already the name of line 1"),
        ("a,0,0,0\nb,0,0,0\n", "line 2: .* is already the colour of line 1"),
    ],
)
def test_a_list_of_classes_is_read_strictly(text: str, told: str, tmp_path: Path):
    (tmp_path / "classes.txt").write_text(text)
    with pytest.raises(UserError, match=told):
        find_classes(DataConfig(), str(tmp_path))


def test_a_mask_whose_name_is_spelled_otherwise(tmp_path: Path):
    write_masks(tmp_path, {"": 8})
    (tmp_path / "images/001.png").rename(tmp_path / "images/\xe9.png")
    (tmp_path / "masks/001.png").rename(tmp_path / "masks/e\u0301.png")
    assert len(opened(f"masks:{tmp_path}")[1]["train"][0]) == 8


def test_a_list_that_is_too_long_or_missing_is_told(tmp_path: Path):
    (tmp_path / "large").write_text("x" * 2**21)
    for name in ("large", "missing"):
        config = DataConfig(source="masks:x", classes=str(tmp_path / name))
        with pytest.raises(UserError, match=rf"data\.classes = '.*{name}'"):
            find_classes(config, None)


def test_a_store_goes_to_other_processes(tmp_path: Path):
    write_masks(tmp_path, {"train": 8, "test": 4})
    splits = load_images(
        source=f"masks:{tmp_path}", image_size=SIDE, channels=1, validation_fraction=0.2
    )
    other = pickle.loads(pickle.dumps(splits.train))
    for name, array in read_all(splits.train).items():
        np.testing.assert_array_equal(array, read_all(other)[name])


def test_a_list_may_have_a_header_and_quoted_names(tmp_path: Path):
    (tmp_path / "classes.csv").write_text('name,R,G,B\n"chair, red",1,2,3\nb,4,5,6\n')
    found = find_classes(DataConfig(), str(tmp_path))
    assert found is not None
    assert found.names == ("chair, red", "b")
    assert found.colours == ((1, 2, 3), (4, 5, 6))


# --- folders -------------------------------------------------------------------------


def opened(source: str, **fields: Any) -> Any:
    return open_store(DataConfig(source=source, **fields))


def test_splits_are_folders_of_both(tmp_path: Path):
    write_masks(tmp_path, {"train/a": 5, "train/b": 4, "val": 3, "test": 2})
    store, splits = opened(f"masks:{tmp_path}")
    sizes = {name: sum(map(len, some)) for name, some in splits.items()}
    assert sizes == {"train": 9, "validation": 3, "test": 2}
    assert store.facts[PIXEL_CLASSES] == NAMES
    images, masks = store.read(np.arange(14))
    for image, mask in zip(images, masks, strict=True):
        assert image.name.replace("/images/", "/masks/") == mask.name
    assert complete(str(tmp_path)) == f"masks:{tmp_path}"


def test_names_may_have_capital_letters(tmp_path: Path):
    write_masks(tmp_path, {"train": 3, "test": 2})
    for old, new in (
        ("images/train", "images/Train"),
        ("images", "Images"),
        ("masks/test", "masks/TEST"),
        ("masks", "MASKS"),
        ("classes.txt", "Classes.TXT"),
    ):
        (tmp_path / old).rename(tmp_path / new)
    for path in [*tmp_path.glob("*/*/*")]:
        path.with_name(f"._{path.name}").write_bytes(b"\0")
        path.rename(path.with_suffix(path.suffix.upper()))
    assert complete(str(tmp_path)) == f"masks:{tmp_path}"
    store, splits = opened(f"masks:{tmp_path}")
    assert {name: len(some[0]) for name, some in splits.items()} == {
        "train": 3,
        "test": 2,
    }
    titles = describe_remarks(store.remarks)
    assert titles == {"passed over": "5 hidden; 5 hidden"}
    (tmp_path / "images").mkdir()
    (tmp_path / "Images").rename(tmp_path / "IMAGES")
    (tmp_path / "images").rename(tmp_path / "imageS")
    with pytest.raises(
        UserError, match="IMAGES, imageS differ only in upper and lower case"
    ):
        opened(f"masks:{tmp_path}")


@each_row(
    ("damage", "told"),
    [
        (lambda f: (f / "masks" / "003.png").unlink(), "images/003.png has no mask"),
        (lambda f: (f / "images" / "003.png").unlink(), "masks/003.png has no image"),
        (
            lambda f: (f / "classes.txt").unlink(),
            "the class list of the masks is missing",
        ),
        (
            lambda f: (f / "images" / "003.jpg").write_bytes(b""),
            "differ only in their extensions",
        ),
        (lambda f: (f / "masks").rename(f / "labels"), "has no directory masks"),
    ],
)
def test_what_does_not_fit_together_is_told(damage: Any, told: str, tmp_path: Path):
    write_masks(tmp_path, {"": 8})
    damage(tmp_path)
    with pytest.raises(UserError, match=told):
        opened(f"masks:{tmp_path}")


def test_white_masks_of_things_are_refused(tmp_path: Path):
    write_masks(tmp_path, {"": 8}, classes="around\nthing")
    for path in (tmp_path / "masks").iterdir():
        mask = np.asarray(Image.open(path)) > 0
        Image.fromarray(255 * mask.astype(np.uint8)).save(path)
    with pytest.raises(UserError, match="only the values 0 and 255"):
        opened(f"masks:{tmp_path}")
    (tmp_path / "classes.txt").write_text("around,0,0,0\nthing,255,255,255\n")
    assert opened(f"masks:{tmp_path}")[0].facts[PIXEL_CLASSES] == ("around", "thing")


@each_row(
    ("damage", "told"),
    [
        (lambda mask: mask[:3], "has 16x3 pixels, but the image has 16x16"),
        (lambda mask: mask + 7, "value 7 in column 0"),
    ],
)
def test_masks_of_which_none_fits_are_told_at_once(
    damage: Any, told: str, tmp_path: Path
):
    write_masks(tmp_path, {"": 8})
    for path in (tmp_path / "masks").iterdir():
        Image.fromarray(damage(np.asarray(Image.open(path)))).save(path)
    with pytest.raises(UserError, match=f"none of 8 checked examples .*{told}"):
        opened(f"masks:{tmp_path}")


def test_the_pixels_of_each_class_are_counted_once(tmp_path: Path):
    write_masks(tmp_path, {"": 70})
    store, _ = opened(f"masks:{tmp_path}")
    Image.new("L", (3, 2), 99).save(tmp_path / store.masks.names[5].decode())
    some = np.array([*range(5), *range(6, 66)])
    masks = np.stack([store.classes.numbers(m, 999) for m in store.masks.read(some)])
    counted = store.count_pixels(np.arange(66))
    np.testing.assert_array_equal(counted, np.bincount(masks.ravel(), minlength=256))


def test_a_mask_that_does_not_fit_is_an_unreadable_example(tmp_path: Path):
    write_masks(tmp_path, {"train": 8, "test": 8})
    Image.new("L", (3, 2)).save(tmp_path / "masks" / "test" / "001.png")
    splits = load_images(source=f"masks:{tmp_path}", image_size=SIDE, channels=1)
    unreadable: list[Any] = []
    read = read_all(splits.test, unreadable=unreadable)
    assert len(unreadable) == 1
    told = str(unreadable[0])
    assert "the mask" in told and "has 3x2 pixels, but the image has 16x16" in told
    assert (read["target"][unreadable[0].index] == IGNORED).all()


def test_a_list_of_images_to_keep(tmp_path: Path):
    write_masks(tmp_path, {"": 8})
    (tmp_path / "keep").write_text("images/001.png\nimages/005.png\n")
    store, splits = opened(f"masks:{tmp_path}", include=str(tmp_path / "keep"))
    assert len(splits["train"][0]) == 2
    assert {store.names[0], store.names[1]} == {b"images/001.png", b"images/005.png"}


# --- tables and arrays ---------------------------------------------------------------


def test_a_table_has_a_column_of_masks(tmp_path: Path):
    write_masks(tmp_path, {"": 8})
    with (tmp_path / "list.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "mask", "split"])
        for i in range(8):
            split = "test" if i > 5 else "train"
            rows.writerow([f"images/{i:03}.png", f"masks/{i:03}.png", split])
    store, splits = opened(f"csv:{tmp_path / 'list.csv'}")
    assert {name: len(some[0]) for name, some in splits.items()} == {
        "train": 6,
        "test": 2,
    }
    assert store.read(np.array([7]))[1][0].name.endswith("masks/007.png")
    with (tmp_path / "list.csv").open("a") as file:
        file.write("images/x.png,../y.png,train\n")
    with pytest.raises(UserError, match=r"line 10.* is outside the directory"):
        opened(f"csv:{tmp_path / 'list.csv'}")


def test_arrays_hold_masks(tmp_path: Path):
    images, masks = shapes(10)
    masks[0, 0, 0] = IGNORED
    file = tmp_path / "set.npz"
    np.savez(file, image=images, label=masks.astype(np.int64))
    splits = load_images(source=f"arrays:{file}", test_fraction=0.2)
    assert splits.train.facts[PIXEL_CLASSES] == ("0", "1", "2")
    read = read_all(splits.train)
    assert read["target"].shape[1:] == (SIDE, SIDE)
    np.savez(file, image=images, label=masks.astype(np.int64) + 300)
    with pytest.raises(UserError, match="expected class indices from 0 to 254"):
        opened(f"arrays:{file}")


def test_data_sets_of_the_library_hold_masks(tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    images, masks = shapes(30)
    rows = {
        "image": [Image.fromarray(image) for image in images],
        "annotation": [Image.fromarray(mask) for mask in masks],
    }
    kinds = datasets.Features({name: datasets.Image() for name in rows})
    datasets.Dataset.from_dict(rows, features=kinds).save_to_disk(str(tmp_path / "set"))
    (tmp_path / "names").write_text("\n".join(NAMES))
    fields = {"classes": str(tmp_path / "names"), "image_size": SIDE, "channels": 1}
    splits = load_images(source=f"hf:{tmp_path / 'set'}", **fields)
    read = read_all(splits.train)
    np.testing.assert_array_equal(read["image"][..., 0] // 70, read["target"])
    with pytest.raises(UserError, match="the class list of the masks is missing"):
        opened(f"hf:{tmp_path / 'set'}")


def test_what_comes_from_outside_has_the_value_of_the_border():
    mask = np.random.default_rng(0).integers(0, 256, (6, 5)).astype(np.uint8)
    crop = PaddedCrop(2, np.int32(4), np.int32(1))  # pyright: ignore
    moved = np.asarray(jax.jit(lambda x: crop.pixels(x, border=IGNORED))(mask))
    np.testing.assert_array_equal(moved[:4, 1:], mask[2:, :4])
    assert (moved[4:] == IGNORED).all() and (moved[:, :1] == IGNORED).all()


# --- the doctor ----------------------------------------------------------------------
