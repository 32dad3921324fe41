"""Images that EXIF turns: their pixels, their boxes, their masks, and what is said."""

import io
import itertools
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps, TiffImagePlugin, TiffTags

from jaxtrain.config import DataConfig
from jaxtrain.data import formats, opening, sources
from jaxtrain.data.exif import ORIENTATION
from jaxtrain.data.files import UPRIGHT, open_file
from jaxtrain.data.stores import remarks_of
from jaxtrain.errors import UserError
from jaxtrain.plugins.segmentation.upright import (
    TITLE,
    stored_boxes,
    upright_boxes,
    upright_pixels,
)

# A thing of stored pixels, in an image of 60x40.
LEFT, TOP, RIGHT, BOTTOM = BOX = (2, 2, 22, 14)
HEIGHT, WIDTH = 40, 60


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


def picture() -> Image.Image:
    """An image of stored pixels: a white thing on black."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[TOP:BOTTOM, LEFT:RIGHT] = 255
    return Image.fromarray(pixels)


def bounds(pixels: np.ndarray) -> list[int]:
    rows, columns = (np.flatnonzero(pixels.any(axis=i)) for i in (1, 0))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_geometry_is_that_of_pillow(orientation: int) -> None:
    grey = np.asarray(picture().convert("L"))
    turned = grey
    if orientation != 1:
        turned = np.asarray(Image.fromarray(grey).transpose(UPRIGHT[orientation]))
    np.testing.assert_array_equal(upright_pixels(grey, orientation), turned)
    found = upright_boxes(np.array([BOX], float), (HEIGHT, WIDTH), orientation)
    assert found.tolist() == [bounds(turned)]
    size = turned.shape[0], turned.shape[1]
    assert stored_boxes(found, size, orientation).tolist() == [[*BOX]]


# --- reading -------------------------------------------------------------------------


def encode(format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture().save(buffer, format, **options)
    return buffer.getvalue()


def png_with(kind: bytes, data: bytes) -> bytes:
    """A PNG with a chunk behind its pixels."""
    png, body = encode("PNG"), kind + data
    end = png.rindex(b"IEND") - 4
    chunk = struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    return png[:end] + chunk + png[end:]


def files_of(orientation: int) -> dict[str, bytes]:
    """Files of all formats, and of all ways to tell the orientation."""
    exif = exif_of(orientation)
    raw = exif.tobytes()
    profile = f"\nexif\n{len(raw):8}\n{raw.hex()}\n".encode()
    xmp = f'<x tiff:Orientation="{orientation}"/>'.encode()
    described = TiffImagePlugin.ImageFileDirectory_v2()
    described.tagtype[700], described[700] = TiffTags.BYTE, xmp
    known = ("JPEG", "PNG", "WEBP", "TIFF", "HEIF", "AVIF")
    return {
        **{name: encode(name, exif=exif) for name in known if formats.is_read(name)},
        "JPEG, XMP": encode("JPEG", xmp=xmp),
        "WebP, XMP": encode("WEBP", xmp=xmp),
        "TIFF, XMP": encode("TIFF", tiffinfo=described),
        "PNG, late": png_with(b"eXIf", raw.removeprefix(b"Exif\0\0")),
        "PNG, text": png_with(b"tEXt", b"Raw profile type exif\0" + profile),
        "PNG, XMP": png_with(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp),
    }


@pytest.mark.parametrize("orientation", [2, 6])
def test_images_are_upright_wherever_the_format_tells(orientation: int) -> None:
    for name, data in files_of(orientation).items():
        with Image.open(io.BytesIO(data)) as stored:
            wanted = ImageOps.exif_transpose(stored).convert("RGB")
        file = open_file(data, 10_000)
        assert (file.width, file.height) == wanted.size, name
        # Lossy codecs differ by a little from one decoder to the other.
        difference = np.asarray(wanted).astype(int) - file.decode(3)
        assert np.abs(difference).max() < 32, name


def test_damaged_exif_data_leave_an_image_as_it_is() -> None:
    data = encode("JPEG", exif=b"Exif\0\0MM\0nonsense")
    assert open_file(data, 10_000).orientation == 1


# --- boxes and masks -----------------------------------------------------------------


def write_coco(folder: Path, path: Path, size: Any) -> str:
    sides = {"height": size[0], "width": size[1]}
    values = {
        "images": [{"id": 1, "file_name": path.name, **sides}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [2, 2, 20, 12]}],
        "categories": [{"id": 1, "name": "thing"}],
    }
    (folder / "boxes.json").write_text(json.dumps(values))
    return f"coco:{folder / 'boxes.json'}"


def write_yolo(folder: Path, path: Path) -> str:
    for part in ("images", "labels"):
        (folder / part / "train").mkdir(parents=True)
    path.rename(folder / "images" / "train" / path.name)
    middle = (LEFT + RIGHT) / 2 / WIDTH, (TOP + BOTTOM) / 2 / HEIGHT
    size = (RIGHT - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT
    line = " ".join(map(repr, (0, *middle, *size)))
    (folder / "labels" / "train" / f"{path.stem}.txt").write_text(line)
    (folder / "data.yaml").write_text("names: [thing]")
    return f"yolo:{folder}"


def write_masks(folder: Path, path: Path) -> str:
    for part in ("images", "masks"):
        (folder / part).mkdir()
    path.rename(folder / "images" / path.name)
    mask = Image.fromarray(np.asarray(picture().convert("L")) // 255)
    mask.save(folder / "masks" / f"{path.stem}.png")
    (folder / "classes.txt").write_text("none\nthing")
    return f"masks:{folder}"


def write(folder: Path, kind: str, orientation: int) -> str:
    path = folder / "photo.png"
    picture().save(path, exif=exif_of(orientation))
    if kind == "coco":
        return write_coco(folder, path, (HEIGHT, WIDTH))
    return write_yolo(folder, path) if kind == "yolo" else write_masks(folder, path)


def read_one(config: DataConfig) -> tuple[np.ndarray, list[int]]:
    """The first image of a set of one, and the bounds of its target."""
    store, splits = opening.open_store(config)
    source = sources.open_split(config, store, splits, False, "train")
    batch = source.read(np.arange(1))
    image, target = batch["image"][0, ..., 0] > 200, batch["target"]
    if isinstance(target, np.ndarray):
        return image, bounds(target[0] == 1)
    return image, np.rint(target["boxes"][0, 0]).astype(int).tolist()


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("kind", "orientation"),
    [*zip(itertools.cycle(["coco", "yolo", "masks"]), range(1, 9), strict=False)],
)
def test_what_was_drawn_on_stored_pixels_turns_with_them(
    tmp_path: Path, kind: str, orientation: int
) -> None:
    source = write(tmp_path, kind, orientation)
    config = DataConfig(
        source=source, image_size=60, crop_mode="border", boxes_drawn_on="stored"
    )
    image, found = read_one(config)
    assert found == bounds(image)


@pytest.mark.plugins
@pytest.mark.parametrize("kind", ["coco", "yolo", "masks"])
def test_without_the_option_they_are_of_the_upright_image(
    tmp_path: Path, kind: str
) -> None:
    source = write(tmp_path, kind, 3)
    config = DataConfig(source=source, image_size=60, crop_mode="border")
    _, found = read_one(config)
    assert found == [LEFT, TOP + 10, RIGHT, BOTTOM + 10]
    (remark,) = remarks_of(opening.open_store(config)[0])
    assert remark.title == TITLE
    assert remark.serious
    assert "data.boxes_drawn_on = stored" in remark.text
    assert ("masks" if kind == "masks" else "boxes") in remark.text
    for known in (
        DataConfig(source=source, boxes_drawn_on="stored"),
        DataConfig(source=source, boxes_drawn_on="upright"),
    ):
        assert not remarks_of(opening.open_store(known)[0])


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("size", "given", "told"),
    [
        ((HEIGHT, WIDTH), None, "data.boxes_drawn_on = stored"),
        ((WIDTH, HEIGHT), "stored", "data.boxes_drawn_on = upright"),
        ((45, 65), None, "EXIF rotates it (orientation 6)"),
    ],
)
def test_a_size_of_coco_that_exif_explains_is_named(
    tmp_path: Path, size: Any, given: Any, told: str
) -> None:
    write(tmp_path, "coco", 6)
    source = write_coco(tmp_path, tmp_path / "photo.png", size)
    with pytest.raises(UserError, match="the boxes are for an image of") as error:
        read_one(DataConfig(source=source, image_size=60, boxes_drawn_on=given))
    assert told in str(error.value)


@pytest.mark.plugins
@pytest.mark.parametrize("side", ["stored", "upright"])
def test_a_size_that_coco_lacks_is_that_of_the_same_pixels(
    tmp_path: Path, side: Any
) -> None:
    write(tmp_path, "coco", 6)
    source = write_coco(tmp_path, tmp_path / "photo.png", (None, None))
    config = DataConfig(
        source=source, image_size=60, crop_mode="border", boxes_drawn_on=side
    )
    image, found = read_one(config)
    # An image of 40x60 has borders of 10 pixels on both sides.
    assert found == (bounds(image) if side == "stored" else [12, 2, 32, 14])


def test_without_boxes_or_masks_the_option_has_no_effect(tmp_path: Path) -> None:
    for name in "ab":
        picture().save(tmp_path / f"{name}.png")
    (tmp_path / "list.csv").write_text("path,label\na.png,x\nb.png,y\n")
    source = f"csv:{tmp_path / 'list.csv'}"
    with pytest.raises(UserError, match="has neither boxes nor masks"):
        opening.open_store(DataConfig(source=source, boxes_drawn_on="stored"))
