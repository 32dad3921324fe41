"""A kind of inputs that a plug-in brings: how its examples are read and described."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import data
from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.data.batch_specs import train_spec
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.data.image_files import FileNames, ImageFileStore
from jaxtrain.data.image_source import Source
from jaxtrain.data.input_kind import INPUT, PICTURES, InputKind
from jaxtrain.data.opening import complete
from jaxtrain.data.preprocess import make_preprocess
from jaxtrain.errors import UserError
from jaxtrain.inference.pixels import to_pixels
from jaxtrain.weights.description import Description
from tests.helpers import taught

SHAPE = (4, 4, 1)


@dataclass(frozen=True)
class Heights(InputKind):
    """Texts of a number, stored as int16 (1, 1, 1): images of one grey."""

    heights: dict[str, int]

    noun: ClassVar[str] = "height"
    source: ClassVar[str] = "heights"
    are_images: ClassVar[bool] = False
    dtype: ClassVar[type[np.generic]] = np.int16

    @classmethod
    def marks(cls, name: bytes) -> bool:
        return name.endswith(b".height")

    @property
    def crops_at_random(self) -> bool:
        return True

    def stored_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        return 1, 1, 1

    def image_shape(self, stored_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        return SHAPE

    def to_images(self, stored: Any) -> Any:
        return jnp.broadcast_to(stored.astype(float), (len(stored), *SHAPE))

    def decode(self, data: Any, seed: Sequence[int] | None = None) -> np.ndarray:
        if not data.isdigit():
            raise UnreadableError("it is no number")
        return np.full((1, 1, 1), int(data) + sum(seed or ()), np.int16)

    def to_stored(self, given: Any) -> np.ndarray:
        return self.decode(given)


class HeightStore(ImageFileStore):
    image_shape = (1, 1, 1)


KIND = Heights({"a": 1})


@pytest.fixture
def source(tmp_path: Path) -> Source:
    for name, text in {"0": "10", "1": "none", "2": "30"}.items():
        (tmp_path / name).write_text(text)
    names = FileNames.join([b"0", b"1", b"2"])
    facts = {"num_classes": 2, INPUT: KIND}
    store = HeightStore(str(tmp_path), names, np.array([0, 1, 0]), facts)
    return Source(store, np.arange(3), (1, 1, 1), 2**20)


def test_a_source_decodes_examples_of_the_kind(source: Source):
    unreadable: list[Any] = []
    batch = source.read(np.arange(3), unreadable=unreadable)
    assert batch["image"].dtype == np.int16 and batch["image"].shape == (3, 1, 1, 1)
    np.testing.assert_array_equal(batch["image"].ravel(), [10, 0, 30])
    assert [(bad.index, bad.reason) for bad in unreadable] == [(1, "it is no number")]
    batch = source.read(np.array([0, 2]), crop_seeds=np.array([[1, 2], [3, 4]]))
    np.testing.assert_array_equal(batch["image"].ravel(), [13, 37])
    assert source.model_input_shape == SHAPE and source.canvas_shape == (1, 1, 1)
    pictures = source.pictures(batch["image"])
    assert pictures.dtype == np.uint8 and pictures.shape == (2, *SHAPE)
    spec = train_spec(DataConfig(augment=AugmentConfig()), source)
    assert spec.example["image"].dtype == np.int16 and "box" not in spec.example


def test_a_step_makes_images_of_them():
    prepare = make_preprocess((0.0,), (1.0,), jnp.float32, input=KIND)
    stored = np.array([51, 255], np.int16).reshape(2, 1, 1, 1)
    batch = {"index": jnp.arange(2), "image": jnp.asarray(stored)}
    found = prepare({}, batch, jnp.zeros(()), jnp.zeros(()))["image"]
    np.testing.assert_allclose(found, np.broadcast_to(stored / 255, (2, *SHAPE)))
    assert to_pixels(b"7", (1, 1, 1), taught.describe().fit, input=KIND).item() == 7


def test_a_description_and_a_folder_name_the_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    values = taught.describe(image_shape=SHAPE, input=KIND).to_dict()
    values = json.loads(json.dumps(values))
    with pytest.raises(UserError, match="differs in heights"):
        Description.from_dict(values, "here")
    plain = Description.from_dict({**values, "heights": None}, "here")
    assert plain.input == PICTURES and "heights" not in plain.to_dict()
    (tmp_path / "1.height").touch()
    assert complete(str(tmp_path)) == f"folder:{tmp_path}"
    monkeypatch.setattr(
        data.INPUTS, "references", {"heights": f"{__name__}:{Heights.__name__}"}
    )
    about = Description.from_dict(values, "here")
    assert about.input == KIND and about.stored_shape == (1, 1, 1)
    assert complete(str(tmp_path)) == f"heights:{tmp_path}"
    with pytest.raises(
        UserError, match=r"does not produce images of shape \(8, 8, 1\)"
    ):
        Description.from_dict({**values, "image_shape": (8, 8, 1)}, "here")
