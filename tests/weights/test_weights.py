"""Weights that other libraries saved: loaded, begun with, and refused."""

import dataclasses
import importlib
import importlib.util
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from jaxtrain import extras, load_model
from jaxtrain.cli import main
from jaxtrain.config import Config, ConvNetConfig
from jaxtrain.errors import UserError
from jaxtrain.weights import channels, files
from jaxtrain.weights.foreign import open_file
from jaxtrain.weights.sources import SOURCES
from jaxtrain.weights.spec import check_kept
from jaxtrain.weights.stored import Transfer, abstract_weights
from tests.helpers import fake_torch, tiny
from tests.helpers.command import with_devices
from tests.helpers.damage import read_weights
from tests.helpers.images import encode
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines
from tests.helpers.words import quoted

REPO = "owner/tiny"
# A learning rate so small that the weights stay what they are.
STILL = recipe(
    data='DataConfig(source="synthetic:8x8x3/4/96", batch_size=16)',
    model='ConvNetConfig(name="convnet")',
    optimizer="SGDConfig(learning_rate=1e-12)",
    train="TrainConfig(steps=2)",
    checkpoint="CheckpointConfig(every_steps=1)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tiny model is one that timm and torchvision have."""
    rows = tiny.source("timm"), tiny.source("torchvision")._replace(crop_pct=0.5)
    monkeypatch.setitem(SOURCES, "convnet", rows)
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def stored(folder: Path, name: str = "tiny.safetensors") -> str:
    return str(shutil.copy(tiny.FILE, folder / name))


KINDS: dict[str, Callable[[Path], str]] = {
    "pth": lambda at: stored(at, "tiny-0676ba61.pth"),
    "safetensors": stored,
    "folder": lambda at: str(tiny.write_folder(at / "tiny")),
    "bin": lambda at: str(tiny.write_folder(at / "tiny", "pytorch_model.bin")),
    "in a folder": lambda at: str(tiny.write_folder(at / "t") / "model.safetensors"),
    "hub": lambda at: tiny.write_cache(at / "cache", REPO) and f"hf:{REPO}",
    "revision": lambda at: tiny.write_cache(at / "cache", REPO) and f"hf:{REPO}@main",
}
# crop_pct, interpolation and the first mean: of its config, or of the source's row.
TOLD = {"pth": (0.5, "bicubic", 0.5), "safetensors": (0.75, "bicubic", 0.5)}


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_pytorch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake_torch.install(monkeypatch)  # It reads safetensors, whatever their name.
    model = load_model(KINDS[kind](tmp_path))
    forward, images = jax.jit(model.forward), jnp.asarray(tiny.images())
    found = forward(model.params, model.model_state, images)
    expected = tiny.logits()
    # Float32 of three layers against float64.
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
    about = model.description
    assert about.model.name == "convnet" and about.model.arguments()["width"] == 0.125
    assert about.image_shape == (8, 8, 3) and about.num_outputs == 5
    assert about.class_names == tuple("01234")
    told = TOLD.get(kind, (0.9, "bilinear", 0.1))
    assert (about.crop_pct, about.interpolation, about.mean[0]) == told
    assert len(model.origin["weights"]) == 64


def train(at: Path, words: str, expression: str = STILL, code: int = 0) -> Path:
    config = write_recipe(at / "still.py", expression)
    command = f"--config {quoted(config)} --workdir {quoted(at)}/w {words}"
    assert main(shlex.split(command)) == code
    return at / "w"


def photos(folder: Path) -> list[str]:
    """Write images of five classes, in their folders; return their names."""
    rng, names = np.random.default_rng(0), ["ant", "bee", "cat", "dog", "eel"]
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
            (folder / name / f"{i}.png").write_bytes(encode(pixels))
    return names


def resolved(workdir: Path) -> dict[str, Any]:
    return json.loads((workdir / "config.json").read_text())


@pytest.mark.slow
def test_a_run_takes_what_comes_with_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tiny.write_folder(tmp_path / "tiny")
    words = f"--model.pretrained {quoted(file)} --data.image-size 8"
    workdir = train(tmp_path, words)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    config = resolved(workdir)
    assert config["model"]["width"] == 0.125
    data = {k: config["data"][k] for k in ("mean", "std", "crop_pct", "interpolation")}
    assert data == {
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
        "crop_pct": 0.9,
        "interpolation": "bilinear",
    }
    digest = files.digest(file / "model.safetensors")
    assert config["model"]["pretrained_digest"] == digest
    assert f"sha256 {digest[:12]}" in shown
    for text in ("data.crop_pct = 0.9", "model.width = 0.125", "data.mean = (0.1, 0.2"):
        assert text in shown
    assert "which had 5 outputs: head/linear" in shown
    about = json.loads((workdir / "model.json").read_text())
    assert about["crop_pct"] == 0.9 and about["mean"] == [0.1, 0.2, 0.3]
    theirs, own = load_model(file), load_model(workdir)
    for layer in ("conv1", "conv2"):
        np.testing.assert_allclose(
            theirs.params[layer]["kernel"], own.params[layer]["kernel"], rtol=1e-6
        )
    # The run goes on without them, and tells so.
    shutil.rmtree(file)
    train(tmp_path, f"{words} --train.steps 3")
    shown = capsys.readouterr().out
    assert "started from" in shown and digest[:12] in shown
    assert resolved(workdir)["data"]["crop_pct"] == 0.9


@pytest.mark.slow
def test_the_recipe_has_the_last_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tiny.write_folder(tmp_path / "tiny")
    words = f"--model.pretrained {quoted(file)} --data.image-size 8 --data.crop-pct 1.0"
    words += " --data.mean 0.5 0.5 0.5 --data.std 0.5 0.5 0.5"
    workdir = train(tmp_path, words)
    assert resolved(workdir)["data"]["mean"] == [0.5, 0.5, 0.5]
    assert resolved(workdir)["data"]["crop_pct"] == 1.0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "data.crop_pct = 1, the weights have 0.9" in shown
    assert "data.mean = (0.5, 0.5, 0.5), the weights have (0.1, 0.2, 0.3)" in shown


@pytest.mark.slow
def test_grey_images_get_the_sum_over_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    grey = STILL.replace("8x8x3/4/96", "8x8x1/4/96")
    file = stored(tmp_path)
    workdir = train(tmp_path, f"--model.pretrained {quoted(file)}", grey)
    theirs, own = load_model(file), load_model(workdir)
    np.testing.assert_allclose(
        theirs.params["conv1"]["kernel"].sum(2, keepdims=True),
        own.params["conv1"]["kernel"],
        rtol=1e-5,
    )
    assert own.description.mean == (pytest.approx(0.4),)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "conv1, from 3 channels to 1" in shown


@each_row("wanted", [1, 2, 4, 5, 6])
def test_other_channels_keep_what_grey_images_give(wanted: int):
    kernel = np.random.default_rng(0).normal(size=(3, 3, 3, 4)).astype(np.float32)
    found = channels.convert(kernel, wanted)
    assert found.shape == (3, 3, wanted, 4) and found.dtype == np.float32
    if wanted % 3 == 0 or wanted == 1:
        np.testing.assert_allclose(found.sum(2), kernel.sum(2), rtol=1e-5)
    mean, std = channels.statistics((0.1, 0.2, 0.6), (1.0, 1.0, 1.0), wanted)
    assert len(mean) == len(std) == wanted and np.mean(mean) <= 0.3 + 1e-9


@pytest.mark.slow
def test_classes_of_other_names_get_a_new_last_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    names = photos(tmp_path / "photos")
    recipe = STILL.replace("synthetic:8x8x3/4/96", f"folder:{tmp_path}/photos")
    heads = {}
    for kind, labels in (("others", names[::-1]), ("none", None)):
        file = tiny.write_folder(tmp_path / kind / "tiny", label_names=labels)
        words = (
            f"--model.pretrained {quoted(file)} --data.image-size 8 --train.epochs 1"
        )
        workdir = train(tmp_path / kind, words, recipe)
        one, other = (
            load_model(path).params["head"]["linear"]["kernel"]
            for path in (file, workdir)
        )
        heads[kind] = np.allclose(one, other, rtol=1e-6)
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert ("5 outputs of other classes" in shown) == (kind == "others")
    assert heads == {"others": False, "none": True}


@pytest.mark.slow
def test_an_auxiliary_head_may_be_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    names = dataclasses.replace(tiny.NAMES, unused=(r"bn2\..*",))
    monkeypatch.setitem(SOURCES, "convnet", (tiny.source("timm", names=names),))
    from safetensors.numpy import load_file, save_file

    found = load_file(tiny.FILE)
    kept = {k: x for k, x in found.items() if not k.startswith("bn2")}
    save_file(kept, tmp_path / "tiny.safetensors")
    workdir = train(tmp_path, f"--model.pretrained {quoted(tmp_path)}/tiny.safetensors")
    assert "not in the weights: norm2" in capsys.readouterr().out
    # What a new batch norm begins with.
    scale = load_model(workdir).params["norm2"]["scale"]
    np.testing.assert_allclose(scale, 1, rtol=1e-6)


@pytest.mark.slow
def test_a_digest_pins_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = stored(tmp_path, "mine.safetensors")
    reference = f"timm:tiny={file}"
    words = f"--model.pretrained={quoted(reference)} --model.pretrained-digest"
    train(tmp_path, f"{words} 00000000", code=2)
    assert "give the intended weights" in capsys.readouterr().err
    digest = files.digest(Path(file))
    workdir = train(tmp_path, f"{words} {digest[:8]}")
    model = resolved(workdir)["model"]
    assert model["pretrained_digest"] == digest and model["pretrained"] == reference
    train(tmp_path, f"{words} {digest[:8]} --train.steps 3")
    train(tmp_path, f"{words} 00000000 --train.steps 3", code=2)
    assert "model.pretrained_digest" in capsys.readouterr().err


def damaged(at: Path, change: Callable[[bytes], bytes], name: str) -> str:
    (at / name).write_bytes(change(tiny.FILE.read_bytes()))
    return str(at / name)


BAD: dict[str, tuple[Callable[[Path], str], str]] = {
    "no path": (lambda at: f"{at}/none.pth", "none.pth does not exist"),
    "no model": (lambda at: f"{at}", "give the directory of a run, or of a model"),
    "cut arrays": (
        lambda at: damaged(at, lambda x: x[:-99], "tiny.safetensors"),
        "fc.weight is truncated",
    ),
    "architecture": (
        lambda at: str(tiny.write_folder(at / "t", architecture="resnet51")),
        "'resnet51' is not a supported architecture",
    ),
    "arguments": (
        lambda at: str(tiny.write_folder(at / "t", model_args={"act_layer": "silu"})),
        "does not support act_layer = 'silu'",
    ),
    "interpolation": (
        lambda at: str(tiny.write_folder(at / "t", cfg_interpolation="lanczos")),
        "interpolation = 'lanczos'",
    ),
    "size": (
        lambda at: str(tiny.write_folder(at / "t", cfg_input_size=[1, 8, 8])),
        "input_size = [1, 8, 8]",
    ),
    "hub": (lambda at: "hf:owner/none", "HF_HUB_OFFLINE=1"),
    "kind": (lambda at: damaged(at, bytes, "tiny.json"), "give a weight file"),
}


@pytest.mark.slow
@each_row("name", BAD)
def test_bad_weights_end_with_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    make, message = BAD[name]
    reference = make(tmp_path)
    train(tmp_path, f"--model.pretrained {quoted(reference)}", code=2)
    assert message in capsys.readouterr().err
    (tmp_path / "image.png").write_bytes(encode(np.zeros((8, 8, 3), np.uint8)))
    words = f"predict --workdir {quoted(reference)} {quoted(tmp_path)}/image.png"
    assert main(shlex.split(words)) == 2
    assert message in capsys.readouterr().err


def test_a_file_without_a_name_is_named_by_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, image = stored(tmp_path, "mine.safetensors"), tmp_path / "image.png"
    image.write_bytes(encode(np.zeros((8, 8, 3), np.uint8)))

    def predict(reference: str, *words: str) -> tuple[int, str]:
        code = main(["predict", "--workdir", reference, *words, str(image)])
        told = capsys.readouterr()
        return code, told.out + told.err

    code, told = predict(file)
    assert code == 2 and f"timm:ARCHITECTURE={file}" in told
    code, told = predict(f"timm:tiny.in1k={file}")
    assert code == 0, told
    assert load_model(f"timm:tiny={file}").description.crop_pct == 0.75
    assert load_model(f"torchvision:tiny={file}").description.crop_pct == 0.5
    for reference, message in {
        f"timm:resnet18={file}": "mine.safetensors does not fit resnet18 of timm",
        f"timm:tinier={file}": "'tinier' is not a supported architecture",
        "timm:tiny": "expected timm:ARCHITECTURE=FILE",
        f"timm:tiny={tmp_path}/none.pth": "none.pth does not exist",
        f"timm:tiny={tmp_path}": "is a directory: give a weight file of tiny",
        f"timm:tiny={image}": "is an image",
    }.items():
        code, told = predict(reference)
        assert code == 2 and message in told


def test_fresh_leaves_a_file_that_the_user_names(tmp_path: Path):
    reference = f"timm:tiny={tmp_path}/run/mine.safetensors"
    config = Config(model=ConvNetConfig(pretrained=reference))
    check_kept(config, tmp_path / "other")
    with pytest.raises(UserError, match="--fresh would move"):
        check_kept(config, tmp_path / "run")


def test_the_extra_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "huggingface_hub" else found(name, *a),
    )
    train(tmp_path, "--model.pretrained hf:owner/tiny", code=2)
    assert extras.install("hub") in capsys.readouterr().err


def test_another_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = stored(tmp_path)
    train(tmp_path, f"--model.pretrained {quoted(file)} --model.name lenet", code=2)
    told = capsys.readouterr().err
    assert "has weights of convnet" in told and "set --model.name convnet" in told
    train(tmp_path, f"--model.pretrained {quoted(file)} --model.width 0.25", code=2)
    told = capsys.readouterr().err
    assert "of another shape (conv1.weight: [8, 3, 3, 3], expected [16, 3" in told


def check_parts() -> None:
    """Place the weights on two devices, by their last dim where it is even."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "convnet", (tiny.source("timm"),))
        trained, whole = open_file(tiny.FILE), load_model(tiny.FILE)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("fsdp",))
    assert mesh.size == 2

    def place(x: Any) -> jax.ShapeDtypeStruct:
        spec = PartitionSpec(*[None] * (len(x.shape) - 1), "fsdp")
        where = NamedSharding(mesh, PartitionSpec() if x.shape[-1] % 2 else spec)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)

    own = jax.tree.map(place, abstract_weights(trained.about))
    placed = Transfer(trained).fill(own)
    kernel = placed[0]["conv2"]["kernel"]
    assert [s.data.shape for s in kernel.addressable_shards] == 2 * [(3, 3, 8, 4)]
    jax.tree.map(
        np.testing.assert_array_equal, placed, (whole.params, whole.model_state)
    )


@pytest.mark.slow
def test_each_device_gets_its_part():
    with_devices(2, check_parts)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose weights hardly move."""
    folder = tmp_path_factory.mktemp("still")
    return train(folder, "--model.width 0.125 --train.steps 1")


@pytest.mark.plugins
@pytest.mark.slow
@each_row(
    "words",
    [
        "--parallel.pipeline-stages 2 --train.accumulate-steps 2",
        "--parallel.fsdp 2 --parallel.data 2 --parallel.batch-norm 4 "
        "--precision pure_bf16 --train.ema-decay 0.9",
    ],
)
def test_the_way_of_a_run_does_not_matter(words: str, still: Path, tmp_path: Path):
    config = still.parent / "still.py"
    given = (
        f"--config {quoted(config)} --workdir w --model.pretrained "
        f"{quoted(still)} {words}"
    )
    Cli(tmp_path).done(*shlex.split(given), JAX_NUM_CPU_DEVICES="4")
    one, other = map(load_model, (still, tmp_path / "w"))
    assert (
        one.description.model.arguments()["width"]
        == other.description.model.arguments()["width"]
    )
    # bfloat16 keeps 8 digits, and pure_bf16 rounds at random.
    rtol = 2**-7 if "bf16" in words else 1e-5

    def check(x: Any, y: Any) -> None:
        # Biases begin at 0.
        np.testing.assert_allclose(np.float32(x), np.float32(y), rtol, 1e-9)

    jax.tree.map(check, one.params, other.params)


@settings(max_examples=60, deadline=None)
@given(
    place=st.integers(0, 2000),
    new=st.binary(max_size=8),
    end=st.one_of(st.none(), st.integers(0, 6000)),
)
def test_damaged_safetensors_are_read_or_refused(
    place: int, new: bytes, end: int | None, tmp_path_factory: pytest.TempPathFactory
):
    content = tiny.FILE.read_bytes()
    changed = (content[:place] + new + content[place + len(new) :])[:end]
    read_weights(tmp_path_factory.getbasetemp() / "damaged.safetensors", changed)


def test_a_header_of_safetensors_is_bounded(tmp_path: Path):
    tensor = '{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    for header, told in (
        ('{"a": ' + "[" * 900 + "]" * 900 + "}", "the JSON is nested more than 64"),
        (f'{{"a": {tensor}, "a": {tensor}}}', "the field 'a' occurs twice"),
        ('{"a": 1' + "0" * 5000 + "}", "the integer 10{19} is beyond"),
    ):
        path = tmp_path / "hostile.safetensors"
        size = len(header).to_bytes(8, "little")
        path.write_bytes(size + header.encode() + bytes(4))
        with pytest.raises(UserError, match=f"not a complete safetensors file: {told}"):
            files.read(path)


@pytest.mark.slow
def test_weights_are_evaluated_on_images(tmp_path: Path):
    photos(tmp_path / "photos")
    file, out = tiny.write_folder(tmp_path / "tiny"), tmp_path / "found.json"
    base = (
        f"evaluate --workdir {quoted(file)} --data.source "
        f"folder:{quoted(tmp_path)}/photos"
    )
    assert main(shlex.split(f"{base} --split all --out {quoted(out)}")) == 0
    found = json.loads(out.read_text())
    assert found["metrics"]["num_examples"] == 60
    model, right = load_model(file), 0
    for label, name in enumerate(
        sorted(p.name for p in (tmp_path / "photos").iterdir())
    ):
        files_of = sorted((tmp_path / "photos" / name).iterdir())
        right += (model.predict(files_of).argmax(-1) == label).sum()
    assert found["metrics"]["accuracy"] == pytest.approx(right / 60)


@pytest.mark.slow
def test_a_range_test_begins_with_them(tmp_path: Path):
    file = tiny.write_folder(tmp_path / "tiny")
    words = f"--model.pretrained {quoted(file)} --data.image-size 8"
    workdir = train(tmp_path, words)
    command = (
        f"find-lr --config {quoted(tmp_path)}/still.py --out "
        f"{quoted(tmp_path)} --steps 20"
    )
    assert main(shlex.split(f"{command} --end 1e-6 {words}")) == 0
    found = json.loads((tmp_path / "find_lr.json").read_text())["loss"][0]
    assert found == pytest.approx(read_lines(workdir, "train")[0]["loss"], rel=1e-6)
