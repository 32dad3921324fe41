"""Images of 16 bits, of more bands than colours, and of shapes far from a square."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import Config, DataConfig
from jaxtrain.data.conversions import conversion_remarks
from jaxtrain.data.files import UnreadableError, open_file
from jaxtrain.errors import UserError
from jaxtrain.inference.pixels import to_pixels
from tests.helpers.deep_images import png, tiff
from tests.helpers.images import encode, load_images, read_all
from tests.helpers.rows import each_row

MAX_PIXELS = DataConfig.max_pixels


def deep_of(channels: int) -> np.ndarray:
    """Return 12 bits of data of which all bits matter, uint16 (16, 16, C)."""
    draws = np.random.default_rng(channels)
    return draws.integers(0, 4096, (16, 16, channels), np.uint16)


def write_set(root: Path, data: bytes) -> dict[str, Any]:
    for name in "ab":
        (root / name).mkdir()
        for i in range(10):
            ending = "png" if data.startswith(b"\x89PNG") else "tif"
            (root / name / f"{i}.{ending}").write_bytes(data)
    return {"source": f"folder:{root}"}


@each_row(
    ("data", "values"),
    [
        (png(deep_of(1)), deep_of(1)),
        (tiff(deep_of(3), 2), deep_of(3)),
    ],
)
def test_a_white_level_keeps_8_bits_of_12(data: bytes, values: np.ndarray):
    channels = values.shape[-1]
    plain = open_file(data, MAX_PIXELS).decode(channels)
    np.testing.assert_array_equal(plain, values >> 8)
    levelled = open_file(data, MAX_PIXELS, 4095).decode(channels)
    np.testing.assert_array_equal(levelled, values >> 4)
    beyond = open_file(data, MAX_PIXELS, 2047).decode(channels)
    np.testing.assert_array_equal(beyond, np.minimum(values >> 3, 255))


def test_a_white_level_has_no_effect_on_8_bits(tmp_path: Path):
    data = encode(np.arange(256, dtype=np.uint8).reshape(16, 16))
    file = open_file(data, MAX_PIXELS, 4095)
    np.testing.assert_array_equal(file.decode(1).ravel(), np.arange(256))
    given: dict[str, Any] = {**write_set(tmp_path, data), "white_level": 4095}
    config, train = DataConfig(**given), load_images(**given).train
    with pytest.raises(UserError, match=r"white_level = 4095 has no effect: none of"):
        conversion_remarks(train, config)


@pytest.mark.plugins
def test_a_white_level_goes_to_all_that_reads_images(tmp_path: Path):
    from jaxtrain.plugins.packed.writer import pack

    values = deep_of(1)
    fields: dict[str, Any] = {"white_level": 4095, "channels": 1}
    fields |= write_set(tmp_path, png(values))
    splits = load_images(**fields)
    assert (read_all(splits.test)["image"] == values >> 4).all()
    seen = to_pixels(png(values), (16, 16, 1), splits.fit)
    np.testing.assert_array_equal(seen, values >> 4)
    pack(DataConfig(**fields), tmp_path / "packed", format="raw")
    packed = load_images(source=f"packed:{tmp_path / 'packed'}", channels=1)
    assert (read_all(packed.test)["image"] == values >> 4).all()


FIVE = np.arange(16 * 16 * 5, dtype=np.uint8).reshape(16, 16, 5)
WIDE = encode(np.zeros((48, 240), np.uint8))


@pytest.mark.plugins
@each_row(
    ("data", "fields", "title", "told"),
    [
        (
            png(deep_of(1)),
            {},
            "grey levels",
            r"18 of 18 inspected images have 16 bits and values up to 4,0\d\d; "
            r"conversion to 8 bits keeps only 16 grey levels: set .* = 4095",
        ),
        (png(deep_of(1)), {"white_level": 4095}, None, ""),
        (png(deep_of(1)), {"white_level": 1023}, "grey levels", "become white"),
        (
            tiff(FIVE, 2),
            {},
            "bands",
            "18 of 18 inspected images have 5 bands, of which the last 2 are not used",
        ),
        (
            WIDE,
            {"image_size": 48},
            "cut away",
            r"80% of the area of the images \(240x48 pixels in the median\) lies "
            "outside the central square crop: set data.crop_mode = border",
        ),
        (WIDE, {"image_size": 48, "crop_mode": "border"}, None, ""),
        (WIDE, {}, None, ""),
    ],
)
def test_what_images_lose_is_told_with_the_option(
    data: bytes, fields: dict[str, Any], title: str | None, told: str, tmp_path: Path
):
    from jaxtrain.plugins.doctor.check import check

    (tmp_path / "set").mkdir()
    given = write_set(tmp_path / "set", data) | fields
    config = DataConfig(**given, test_fraction=0.1, validation_fraction=0)
    found = conversion_remarks(load_images(**vars(config)).train, config)
    diagnosis = check(Config(data=config), tmp_path / "out", sized=True)
    doctor = {finding.kind: finding.title for finding in diagnosis.findings}
    if title is None:
        assert not found
        assert not {"grey_levels", "bands", "cut_away"} & {*doctor}
        return
    (remark,) = found
    assert remark.title == title and remark.serious
    assert doctor[title.replace(" ", "_")] == f"{title}: {remark.text}"
    assert re.search(told, remark.text), remark.text


def test_bands_without_a_meaning_are_refused():
    data = tiff(FIVE, 1)
    with pytest.raises(UnreadableError, match="has 5 bands of unknown colours"):
        open_file(data, MAX_PIXELS)
    pixels = open_file(tiff(FIVE, 2), MAX_PIXELS).decode(3)
    np.testing.assert_array_equal(pixels, FIVE[..., :3])
