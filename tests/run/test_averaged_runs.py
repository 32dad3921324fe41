"""Runs that evaluate an average, or estimate their rate: devices, stops, statistics."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config.recipe import read_run
from jaxtrain.data import sources
from jaxtrain.data.order import epoch_order
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli, run_two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.tiers import thinned

pytestmark = pytest.mark.slow

# An epoch of 5 steps; micro-batches of 8, warm-up, clipping, layers of other rates.
CHANGES = {
    "data": 'DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    "model": 'ModelConfig(name="convnet", width=0.5, dropout=0.1)',
    "checkpoint": "CheckpointConfig(every_steps=3)",
    "logging": "LoggingConfig(every_steps=1, tensorboard=False)",
}
STEPS = 9
RATES = "layer_decay=0.9, "
OPTIMIZERS = {
    "swa": 'name="sgd", learning_rate=0.01',
    "schedule_free_sgd": f'{RATES}name="schedule_free_sgd", learning_rate=0.02',
    "schedule_free_adamw": 'name="schedule_free_adamw", learning_rate=0.001',
    "lookahead": f'{RATES}name="sgd", learning_rate=0.01, lookahead_steps=2',
    "prodigy": 'name="prodigy", learning_rate=1.0',
    "dadapt_adamw": 'name="dadapt_adamw", learning_rate=1.0',
    "plateau": 'name="sgd", learning_rate=0.01, schedule="plateau", plateau_patience=1',
}
# Norms over single examples, whose statistics the devices share.
PARALLEL = {"schedule_free_adamw": "batch_norm=1"}
TRAIN = {
    "swa": ", swa_start_epochs=0.4, swa_factor=1.0",
}


def written(folder: Path, case: str) -> Path:
    """Write the recipe of a case."""
    text = recipe(
        precision='"fp64"',
        optimizer=f"OptimizerConfig({OPTIMIZERS[case]}, warmup_steps=2, "
        "weight_decay=0.01, clip_norm=1.0)",
        train=f"TrainConfig(steps={STEPS}, accumulate_steps=2, eval_every_steps=2"
        f"{TRAIN.get(case, '')})",
        parallel=f"ParallelConfig({PARALLEL.get(case, '')})",
        **CHANGES,
    )
    return write_recipe(folder / "recipe.py", text)


def start(folder: Path, case: str, *words: object, devices: int = 1) -> Path:
    """Train, or go on, in `folder`; return the workdir."""
    folder.mkdir(exist_ok=True)
    config = written(folder, case)
    flags = [f"--{word}" for text in words for word in str(text).split()]
    result = Cli(folder)(
        *("--config", config, "--workdir", folder / "run", *flags),
        JAX_NUM_CPU_DEVICES=str(devices),
        **FP64,
    )
    assert result.code == 0, result.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory):
    """Return a function from a case to its run that nothing stopped."""
    made: dict[str, Path] = {}

    def get(case: str) -> Path:
        if case not in made:
            made[case] = start(tmp_path_factory.mktemp(case), case)
        return made[case]

    return get


@pytest.mark.parametrize("case", thinned(4, ["lookahead", "prodigy", "dadapt_adamw"]))
def test_eight_devices_that_share_the_state_train_the_same(case, whole, tmp_path):
    many = start(tmp_path, case, "parallel.preset=fsdp", devices=8)
    assert_near(many, whole(case))
    assert read_summary(many)["num_devices"] == 8


def assert_near(one: Path, other: Path) -> None:
    """Check that two runs have the same losses, rates and evaluations."""
    for kind, name in (("train", "loss"), ("train", "learning_rate"), ("eval", "loss")):
        ours, theirs = (
            np.array([line[name] for line in read_lines(run, kind)])
            for run in (one, other)
        )
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)


def test_two_processes_train_the_same(whole, tmp_path):
    """Both compute new statistics."""
    config = written(tmp_path, "swa")
    words = ["--config", config, "--workdir", tmp_path / "run"]
    result = run_two(tmp_path, *words, **FP64)
    assert result.code == 0, result.stderr
    assert_near(tmp_path / "run", whole("swa"))


@pytest.mark.parametrize(
    "case", thinned(3, ["plateau", "schedule_free_sgd", "schedule_free_adamw"])
)
def test_a_run_that_was_stopped_ends_the_same(case, whole, tmp_path):
    """Before the first average, between two, and after the last evaluation but one."""
    for stop in (1, 5, 8):
        start(tmp_path, case, f"train.stop-after-steps={stop}")
    assert_same_run(whole(case), start(tmp_path, case), STEPS)


@pytest.mark.parametrize("case", thinned(2, ["swa", "schedule_free_sgd"]))
def test_statistics_are_those_of_the_average(case, whole):
    """The first norm's, behind a convolution: of all training images, in batches of 8.

    As a run saves them, and as a loaded model has them.
    """
    run = whole(case)
    config = read_run(run)
    source = sources.load(config.data, config.seed).train
    chosen, size = epoch_order(0, 0, len(source)), config.micro_batch_size
    means, variances = [], []
    with jax.enable_x64(True):
        model = load_model(run, "latest")
        for first in range(0, len(chosen) - size + 1, size):
            pixels = source.read(chosen[first : first + size])["image"]
            images = (pixels / 255 - model.description.mean) / model.description.std
            features = jax.lax.conv_general_dilated(
                *(jnp.asarray(images), jnp.asarray(model.params["conv1"]["kernel"])),
                *((1, 1), "SAME"),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            means.append(np.mean(features, (0, 1, 2)))
            variances.append(np.var(features, (0, 1, 2)))
    norm = model.model_state["norm1"]
    np.testing.assert_allclose(norm["mean"], np.mean(means, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm["var"], np.mean(variances, 0), rtol=1e-5)


def test_the_rate_falls_where_evaluations_do_not_improve(whole):
    """The rate of each line is that of the schedule times the factor so far."""
    run = whole("plateau")
    best, waited, factor = None, 0, 1.0
    factors = {}
    for line in read_lines(run):
        if line["kind"] == "train":
            factors[line["step"]] = line["learning_rate"] / 0.01
            assert line["step"] <= 2 or factors[line["step"]] == pytest.approx(factor)
        elif line["kind"] == "eval" and line["split"] == "validation":
            if best is None or line["loss"] < best:
                best, waited = line["loss"], 0
            elif waited < 1:
                waited += 1
            else:
                factor, waited = factor * 0.1, 0
    assert min(factors.values()) < 0.2
