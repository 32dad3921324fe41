"""A trained model without the channels that matter least, from ranking to its use."""

import json
import shlex
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain import load_model
from jaxtrain.config.recipe import read_run
from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.compact.channels.cut import take
from jaxtrain.plugins.compact.compact import Limits, choose, open_channels
from jaxtrain.plugins.compact.importance import by_scale, by_taylor
from jaxtrain.tools.evaluation.subject import open_subject
from jaxtrain.training.norm_statistics import chosen_images
from jaxtrain.trees import by_path
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_lines
from tests.helpers.words import quoted

RECIPE = recipe(
    data='DataConfig(source="digits", batch_size=64)',
    model='ConvNetConfig(name="convnet", width=0.25)',
    train="TrainConfig(steps=40)",
    checkpoint="CheckpointConfig(every_steps=20)",
)


def call(folder: Path, words: str, **env: Any) -> str:
    result = Cli(folder)(*shlex.split(words), **env)
    assert result.code == 0, result.stderr
    return result.stdout


def refusal(folder: Path, words: str) -> str:
    result = Cli(folder)(*shlex.split(words))
    assert result.code == 2, result.stderr
    return result.stderr


def arrays(model: TrainedModel) -> dict[str, np.ndarray]:
    weights = {**by_path(model.params), **by_path(model.model_state)}
    return {path: np.asarray(x) for path, x in weights.items()}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, `base`, and what `compact` makes of it, `small`."""
    folder = tmp_path_factory.mktemp("compact")
    write_recipe(folder / "recipe.py", RECIPE)
    call(folder, "--config recipe.py --workdir base")
    words = "compact --workdir base --flops 0.5 --multiple 1 --out small --verbose"
    (folder / "shown.txt").write_text(call(folder, words))
    return folder


@pytest.mark.slow
def test_the_smaller_model_is_the_model_without_some_channels(here: Path):
    base, small = load_model(here / "base"), load_model(here / "small")
    found = open_channels(base.description)
    numbers = small.description.model.channels
    assert numbers.keys() == {"conv1", "conv2"}
    # Each kept channel is one of the model, whole.
    whole, less = arrays(base), arrays(small)
    kept = {}
    for name, number in numbers.items():
        kernel = np.moveaxis(whole[f"{name}/kernel"], -1, 0)
        scale = whole[name.replace("conv", "norm") + "/scale"]
        part = less[name.replace("conv", "norm") + "/scale"]
        kept[name] = np.flatnonzero(np.isin(scale, part))
        assert len(kept[name]) == number < len(kernel) == 16
    indices = found.indices_of(kept)
    for path, x in whole.items():
        np.testing.assert_array_equal(take(path, x, indices), less[path])
    shown = (here / "shown.txt").read_text()
    assert f"│ conv1       │ {numbers['conv1']} of 16 " in shown
    flops = found.flops({}), found.flops(kept)
    assert f"{flops[0]:,} -> {flops[1]:,} ({flops[1] / flops[0]:.2f}x)" in shown
    assert 0.4 < flops[1] / flops[0] <= 0.5
    sizes = (sum(x.size for x in by_path(m.params).values()) for m in (base, small))
    assert "{:,} -> {:,} (".format(*sizes) in shown


@pytest.mark.slow
def test_what_cannot_be_done_is_refused_first(here: Path):
    rows = {
        "--flops 1.5": "--flops 1.5: expected above 0 and below 1",
        "--flops 0.5 --keep 0": "--keep 0: expected above 0",
        "--flops 0.5 --multiple 0": "--multiple 0: expected 1 or more",
        "--flops 0.5 --images 0": "--images 0: expected 1 or more",
        "--flops 0.5 --out base": "--out base already exists",
    }
    for words, message in rows.items():
        out = "" if "--out" in words else " --out new"
        assert message in refusal(here, f"compact --workdir base {words}{out}")


@pytest.mark.slow
def test_what_fits_no_model_is_refused(here: Path):
    rows = {
        "--workdir base --flops 0.01": "expected 0.303 or more",
        "--workdir small --flops 0.5": "small is a model without data",
        "--workdir base --flops 0.5 --checkpoint 7": "expected best, latest",
    }
    for words, message in rows.items():
        assert message in refusal(here, f"compact {words} --out new")
    (here / "own.py").write_text("def same(model):\n    return model\n")
    words = "--config recipe.py --train.steps 2 --workdir changed"
    call(here, f"{words} --model.transform own.py:same")
    words = "compact --workdir changed --flops 0.5 --out new --trust"
    assert "own.py:same' may change the layout" in refusal(here, words)
    words = "--config recipe.py --model.pretrained small --model.channels conv1 99"
    assert "conv1 = 99: expected 1 to 16" in refusal(here, f"{words} --workdir no")
    assert not (here / "new").exists()


OWN = """
import jax.numpy as jnp
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head, mean_head


class Numbered(Model):
    def __init__(self, image_shape, num_outputs, *, layers):
        conv = layers.conv(image_shape[2], 16, 3)
        self.add_piece(numbered, conv=conv)
        self.add_piece(mean_head, head=Head(16, num_outputs, 0.0, layers=layers))


def numbered(conv, x, rngs):
    return jnp.broadcast_to(conv(x), (*x.shape[:3], 16))
"""


@pytest.mark.slow
def test_code_that_has_the_number_of_its_channels_is_refused(tmp_path: Path):
    write_recipe(tmp_path / "recipe.py", RECIPE)
    (tmp_path / "numbered.py").write_text(OWN)
    words = "--config recipe.py --model numbered.py:Numbered"
    call(tmp_path, f"{words} --train.steps 2 --workdir base")
    words = "compact --workdir base --flops 0.5 --out new --trust"
    found = refusal(tmp_path, words)
    assert (
        "numbered.py:Numbered' fails with fewer channels (" in found
        and "[2,8,8,16]" in found
    )
    assert not (tmp_path / "new").exists()


def fake(sizes: dict[str, int]) -> Any:
    """Return channels of groups, each of which costs as much as all others."""

    class Fake:
        def __init__(self) -> None:
            self.groups = {
                name: type("Group", (), {"unit": 1, "num_units": n})()
                for name, n in sizes.items()
            }

        def costs(self) -> dict[str, np.ndarray]:
            return {name: np.ones(n) for name, n in sizes.items()}

        def flops(self, kept: dict[str, np.ndarray]) -> int:
            return sum(len(kept.get(name, range(n))) for name, n in sizes.items())

    return Fake()


def test_the_least_go_and_no_group_loses_all():
    importance = {"a": np.arange(10.0), "b": 100 + np.arange(10.0)}
    found = fake({"a": 10, "b": 10})
    kept = choose(found, importance, Limits(flops=0.75, keep=0.1, multiple=1))
    assert kept["a"].tolist() == [5, 6, 7, 8, 9] and len(kept["b"]) == 10
    kept = choose(found, importance, Limits(flops=0.5, keep=0.2, multiple=1))
    assert kept["a"].tolist() == [8, 9] and kept["b"].tolist() == [2, *range(3, 10)]
    kept = choose(found, importance, Limits(flops=0.75, keep=0.1, multiple=4))
    assert {len(units) % 4 for units in kept.values() if len(units) < 10} == {0}
    with pytest.raises(
        UserError, match=r"--flops 0.1: expected 0.200 or more with --keep 0.2"
    ):
        choose(found, importance, Limits(flops=0.1, keep=0.2, multiple=1))
    # A group that a criterion says nothing of stays whole.
    kept = choose(
        found, {"a": importance["a"]}, Limits(flops=0.6, keep=0.1, multiple=1)
    )
    assert kept.keys() == {"a"}


@pytest.mark.slow
def test_the_criterion_is_the_derivative_by_gates_behind_the_norms(here: Path):
    """Which scale and bias of a norm share, and ReLU and pool let through."""
    base = load_model(here / "base")
    config = read_run(here / "base")
    subject, source = open_subject(base, config, config.data, "train", on_host=True)
    found = open_channels(base.description)
    size, count = 64, 3
    told = by_taylor(base, found, subject, source, size, size * count)

    def loss(gates: jax.Array, norm: str, images: np.ndarray, labels: Any) -> jax.Array:
        params = dict(base.params)
        params[norm] = {path: x * gates for path, x in params[norm].items()}
        outputs = base.portable_forward(params, base.model_state, jnp.asarray(images))
        return -(nnx.log_softmax(outputs) * labels).sum(-1).mean()

    for name, norm in (("conv1", "norm1"), ("conv2", "norm2")):
        expected = []
        for chosen in chosen_images(len(source), size, size * count):
            batch, about = source.read(chosen), base.description
            images = (batch["image"] / 255 - about.mean) / np.array(about.std)
            labels = jax.nn.one_hot(batch["target"], 10)
            given = norm, images.astype(np.float32), labels
            expected.append(jax.grad(loss)(jnp.ones(16), *given))
        # float32, sums of thousands of products that nearly cancel.
        np.testing.assert_allclose(
            told[name], np.square(expected).mean(0), rtol=2e-3, atol=1e-9
        )


@pytest.mark.slow
def test_scales_are_those_of_norms_in_their_mean(here: Path):
    base = load_model(here / "base")
    found = by_scale(base, open_channels(base.description))
    for name, norm in (("conv1", "norm1"), ("conv2", "norm2")):
        scale = np.abs(np.asarray(base.params[norm]["scale"], np.float64))
        np.testing.assert_allclose(found[name], scale / scale.mean(), rtol=1e-12)


@pytest.mark.slow
def test_a_smaller_model_is_one_as_any_other(here: Path, tmp_path: Path):
    """It trains on, ends the same where it is stopped, exports, and is compacted."""
    words = f"--config {quoted(here)}/recipe.py --model.pretrained {quoted(here)}/small"
    shown = call(tmp_path, f"{words} --workdir whole")
    assert "model.channels = values of 2 layers" in shown
    call(tmp_path, f"{words} --workdir parts --train.stop-after-steps 17")
    call(tmp_path, f"{words} --workdir parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts", 40)
    numbers = load_model(here / "small").description.model.channels
    assert read_run(tmp_path / "whole").model.channels == numbers
    assert read_lines(tmp_path / "whole", "eval")[-1]["accuracy"] > 0.9
    call(tmp_path, "evaluate --workdir whole")
    pytest.importorskip("onnxruntime")
    words = "export --workdir whole --format onnx --out small.onnx"
    assert "outputs differ by" in call(tmp_path, words)
    whole = call(here, "export --workdir base --format onnx --out base.onnx")
    size = (tmp_path / "small.onnx").stat().st_size
    assert size < 0.7 * (here / "base.onnx").stat().st_size and whole
    words = "compact --workdir whole --flops 0.6 --multiple 1 --out smaller"
    assert "ms -> " in call(tmp_path, words)
    again = load_model(tmp_path / "smaller").description.model.channels
    assert again.keys() == numbers.keys()
    assert all(again[name] <= numbers[name] for name in again)
    assert sum(again.values()) < sum(numbers.values())


@pytest.mark.exhaustive
def test_the_devices_do_not_matter(here: Path, tmp_path: Path):
    text = RECIPE.replace("Config(", 'Config(precision="fp64", ', 1)
    write_recipe(tmp_path / "recipe.py", text)
    call(tmp_path, "--config recipe.py --workdir base", **FP64)
    made = {}
    for devices in ("1", "8"):
        env = {**FP64, "JAX_NUM_CPU_DEVICES": devices}
        words = f"compact --workdir base --flops 0.4 --out small{devices} --multiple 1"
        call(tmp_path, words, **env)
        made[devices] = json.loads(
            (tmp_path / f"small{devices}" / "config.json").read_text()
        )["jaxtrain"]
    assert made["1"]["origin"]["weights"] == made["8"]["origin"]["weights"]
    base = (
        f"--config {quoted(tmp_path)}/recipe.py --model.pretrained "
        f"{quoted(tmp_path)}/small1"
    )
    alone = call(tmp_path, f"{base} --workdir one", **FP64, JAX_NUM_CPU_DEVICES="1")
    assert alone
    expected = read_lines(tmp_path / "one", "eval")[-1]["loss"]
    ways = {
        "2d": "--parallel.preset 2d --parallel.model 2",
        "stages": "--parallel.pipeline-stages 2",
    }
    for name, options in ways.items():
        words = f"{base} --workdir {name} {options}"
        call(tmp_path, words, **FP64, JAX_NUM_CPU_DEVICES="8")
        found = read_lines(tmp_path / name, "eval")[-1]["loss"]
        assert abs(found - expected) < TOLERANCE
