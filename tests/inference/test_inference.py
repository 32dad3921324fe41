"""A trained model in use: as the run evaluated it, whatever it is loaded from."""

import io
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

from jaxtrain import load_model
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.errors import UserError
from jaxtrain.inference import folder
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.described import describe
from tests.helpers.digits import read_test
from tests.helpers.edited import edit
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.runs import read_summary


@pytest.fixture(scope="module")
def model(digits_run: Path) -> TrainedModel:
    return load_model(digits_run)


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    wide = logits.astype(np.float64)
    log_sums = np.log(np.exp(wide).sum(axis=1))
    return float(np.mean(log_sums - wide[np.arange(len(labels)), labels]))


def test_it_predicts_what_the_run_evaluated(digits_run: Path, model: TrainedModel):
    images, labels = read_test()
    logits, probabilities = model.logits(images), model.predict(images)
    evaluated = read_summary(digits_run)["eval"]
    assert logits.dtype == probabilities.dtype == np.float32
    hits = probabilities.argmax(axis=1) == labels
    assert hits.mean() == pytest.approx(evaluated["accuracy"], abs=1e-7)
    assert cross_entropy(logits, labels) == pytest.approx(evaluated["loss"], rel=1e-5)
    exponents = np.exp(logits)
    expected = exponents / exponents.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    assert model.class_names == tuple("0123456789")


def test_features_are_what_the_last_layer_gets(model: TrainedModel):
    images, _ = read_test()
    features, linear = model.features(images[:5]), model.params["head"]["linear"]
    logits = features @ np.asarray(linear["kernel"]) + np.asarray(linear["bias"])
    np.testing.assert_allclose(logits, model.logits(images[:5]), rtol=1e-4, atol=1e-5)


def test_a_checkpoint_is_chosen(digits_run: Path):
    steps = {
        c: load_model(digits_run, c).origin["step"] for c in ("best", "latest", 10)
    }
    best = read_summary(digits_run)["best"]["step"]
    assert steps == {"best": best, "latest": 30, 10: 10}


def test_a_checkpoint_that_a_run_replaces_is_no_damage(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(digits_run, tmp_path / "run")
    kept = [int(p.name) for p in (digits_run / "checkpoints").iterdir()]
    read, asked = Checkpoints.read, []

    def remove_first(self: Checkpoints, step: int) -> Any:
        asked.append(step)
        if len(asked) == 1:
            shutil.rmtree(self.directory / str(step))
        return read(self, step)

    monkeypatch.setattr(Checkpoints, "read", remove_first)
    found = load_model(tmp_path / "run", "latest").origin["step"]
    assert [*asked, found] == [*sorted(kept)[:-3:-1], sorted(kept)[-2]]


def test_an_exported_folder_is_the_same_model(model: TrainedModel, tmp_path: Path):
    images, _ = read_test()
    folder.write(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.description == model.description
    np.testing.assert_array_equal(again.logits(images), model.logits(images))
    assert again.origin["step"] == model.origin["step"]
    # And once more, from what was loaded.
    folder.write(again, tmp_path / "copy")
    names = {path.name for path in (tmp_path / "copy").iterdir()}
    assert names == {"model.safetensors", "config.json"}
    for name in names:
        one, other = (tmp_path / at / name for at in ("model", "copy"))
        assert one.read_bytes() == other.read_bytes()


def test_images_of_any_kind(model: TrainedModel, tmp_path: Path):
    image = read_test()[0][7]
    picture = Image.fromarray(image[..., 0])
    picture.save(tmp_path / "digit.png")
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, "PNG")
    path = tmp_path / "digit.png"
    kinds = [image, image[..., 0], picture, path, str(path), buffer.getvalue()]
    found = model.logits([*kinds, np.repeat(image, 3, axis=-1)])
    np.testing.assert_array_equal(found, np.repeat(found[:1], len(found), axis=0))
    for alone in (image, path, picture):
        np.testing.assert_array_equal(model.logits(alone), model.logits([image]))


def test_another_size_is_fitted_as_in_an_evaluation(model: TrainedModel):
    small = read_test()[0][3]
    large = np.asarray(Image.fromarray(small[..., 0]).resize((40, 30)))
    # The shorter side times crop_pct, centred, then bilinear.
    side = 30 * 0.875
    box = (20 - side / 2, 15 - side / 2, 20 + side / 2, 15 + side / 2)
    picture = Image.fromarray(large).resize((8, 8), Image.Resampling.BILINEAR, box)
    cut = np.asarray(picture)[..., None]
    np.testing.assert_array_equal(model.logits([large]), model.logits([cut]))


@each_row("num", [0, 1, 3, 65, 130])
def test_any_number_of_images(model: TrainedModel, num: int):
    images = read_test()[0][:num]
    found = model.predict(images)
    assert found.shape == (num, 10)
    if num:
        # Programs of other batches may round otherwise.
        one = model.predict(images[-1:])
        np.testing.assert_allclose(found[-1:], one, atol=1e-6)


def test_grey_images_may_have_no_channels(model: TrainedModel):
    images = read_test()[0][:3]
    expected = model.predict(images)
    np.testing.assert_array_equal(model.predict(images[..., 0]), expected)
    assert model.predict(images[0, ..., 0]).shape == (1, 10)
    # Of the height of the model, an image with channels is one.
    assert model.predict(np.zeros((8, 8, 3), np.uint8)).shape == (1, 10)


# A picture that Pillow has not read yet: its pixels are not all there.
CUT_OFF = io.BytesIO()
Image.effect_noise((32, 32), 50).save(CUT_OFF, "PNG")
CUT_OFF = io.BytesIO(CUT_OFF.getvalue()[:200])

WRONG_IMAGES = {
    "no_such.png is unreadable: No such file": ["no_such.png"],
    "image 0 is unreadable: expected a path, bytes, a Pillow image or": [0.5],
    "got float32[8, 8, 1]": [np.zeros((8, 8, 1), np.float32)],
    "has 4 channels, but the model takes 1": [np.zeros((8, 8, 4), np.uint8)],
    "9 channels, but the model takes 1: give (height, width, channels), here (8, 8, 1),"
    " or (N, 8, 8, 1) for N images": np.zeros((5, 9, 9), np.uint8),
    "image 0 is unreadable: the file is empty": [b""],
    "got uint8[0, 8, 1]": [np.zeros((0, 8, 1), np.uint8)],
    "is unreadable: the pixels have 32 bits": [Image.new("I", (8, 8))],
    "image 1 is unreadable": [Image.new("L", (8, 8)), Image.open(CUT_OFF)],
    "png is unreadable: open: embedded null": ["zero\0byte.png"],
}


@each_row("message", WRONG_IMAGES)
def test_what_is_no_image_is_told(model: TrainedModel, message: str):
    with pytest.raises(UserError) as error:
        model.predict(WRONG_IMAGES[message])
    assert message in str(error.value)


def no_checkpoint(run: Path) -> dict[str, Any]:
    shutil.rmtree(run / "checkpoints")
    return {}


def no_description(run: Path) -> dict[str, Any]:
    (run / "model.json").unlink()
    return {}


def other_version(run: Path) -> dict[str, Any]:
    edit(run / "model.json", jaxtrain="9.9", spectral=True)
    return {}


def other_model(run: Path) -> dict[str, Any]:
    edit(run / "model.json", model__width=0.25)
    return {}


def other_task(run: Path) -> dict[str, Any]:
    edit(run / "model.json", task="of_a_plugin")
    return {}


def other_step(run: Path) -> dict[str, Any]:
    return {"checkpoint": 5}


BROKEN = {
    "has no checkpoint": no_checkpoint,
    "model.json does not exist": no_description,
    "written by 9.9; differs in spectral": other_version,
    "does not fit model.name = 'convnet'": other_model,
    "task = 'of_a_plugin': expected classification, ": other_task,
    "expected best, latest or one of the steps 10, 20, 30": other_step,
}


@each_row("message", BROKEN)
def test_a_run_that_cannot_be_loaded_is_told(
    digits_run: Path, tmp_path: Path, message: str
):
    copy = tmp_path / "run"
    shutil.copytree(digits_run, copy)
    options = BROKEN[message](copy)
    with pytest.raises(UserError, match=message):
        load_model(copy, **options)


def flip_a_bit(exported: Path) -> None:
    path = exported / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def cut_off(exported: Path) -> None:
    path = exported / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])


def of_others(exported: Path) -> None:
    (exported / "config.json").write_text('{"architecture": "resnet18"}')


def no_json(exported: Path) -> None:
    (exported / "config.json").write_text("{")


DAMAGED = {
    "does not match the digest in": flip_a_bit,
    "is truncated": cut_off,
    "does not fit resnet18 of timm": of_others,
    "cannot be read .*Expecting": no_json,
}


@each_row("message", DAMAGED)
def test_a_damaged_folder_is_told(model: TrainedModel, tmp_path: Path, message: str):
    folder.write(model, tmp_path / "model")
    DAMAGED[message](tmp_path / "model")
    with pytest.raises(UserError, match=message):
        load_model(tmp_path / "model")


def test_what_is_there_is_not_written_over(model: TrainedModel, tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    with pytest.raises(UserError, match="is not empty"):
        folder.write(model, tmp_path / "kept")
    with pytest.raises(UserError, match="not writable"):
        folder.write(model, Path("/proc/none/model"))
    with pytest.raises(UserError, match=r"checkpoint = 'latest' has no effect"):
        folder.write(model, tmp_path / "model")
        load_model(tmp_path / "model", "latest")
    with pytest.raises(UserError, match="does not exist"):
        load_model(tmp_path / "nothing")


def described(name: str, **options: Any) -> Description:
    return describe(
        model_config(name, **options),
        (64, 64, 3),
        class_names=tuple("abcdefghij"),
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.2, 0.2),
        crop_pct=0.875,
        interpolation="bicubic",
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet18", {}), ("resnet18", {"stem": "cifar", "width": 0.25}), ("lenet", {})],
)
def test_weights_come_back_from_their_names(
    name: str, options: dict[str, Any], tmp_path: Path
):
    about = described(name, **options)
    draws = np.random.default_rng(0)
    params, model_state = jax.tree.map(
        lambda x: draws.normal(size=x.shape).astype(x.dtype), abstract_weights(about)
    )
    model = TrainedModel(about, params, model_state, {})
    folder.write(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    found = again.params, again.model_state
    jax.tree.map(np.testing.assert_array_equal, found, (params, model_state))
    named = folder.to_named(model)
    assert ("conv1.weight" in named) == (not options and name == "resnet18")
    missing = {key: x for key, x in named.items() if "bias" not in key}
    (tmp_path / "model" / "model.safetensors").write_bytes(save(missing))
    with pytest.raises(UserError, match=r"\d+ missing \("):
        load_model(tmp_path / "model")


def test_statistics_of_groups_become_their_means():
    about = described("convnet", width=0.125)
    draws = np.random.default_rng(0)
    params, model_state = jax.tree.map(
        lambda x: draws.uniform(1, 2, x.shape).astype(x.dtype), abstract_weights(about)
    )
    in_groups = jax.tree.map(lambda x: np.stack([x - 0.5, x, x + 0.5]), model_state)
    made = make_model(about, params, in_groups, {}, "here")
    for one, other in zip(
        *map(jax.tree.leaves, (made.model_state, model_state)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_model_without_classes_has_no_probabilities():
    about = described("lenet")
    about = Description(**{**vars(about), "class_names": None})
    params, model_state = jax.tree.map(
        lambda x: np.zeros(x.shape, x.dtype), abstract_weights(about)
    )
    plain = TrainedModel(about, params, model_state, {})
    with pytest.raises(UserError, match="predicts no class probabilities"):
        plain.predict(np.zeros((1, 64, 64, 3), np.uint8))
    assert plain.logits(np.zeros((1, 64, 64, 3), np.uint8)).shape == (1, 10)
