"""Runs that round to 8 bits: on any devices, and wherever they stop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import Config, ConvNetConfig, ParallelConfig
from jaxtrain.config.part import TASKS, make_part
from jaxtrain.tasks.build import build_task
from jaxtrain.trainer.checks import check_rounded
from jaxtrain.trainer.resolve import resolve_options
from tests.helpers.command import with_devices
from tests.helpers.layered import MODEL, by_path, layered, take_steps
from tests.helpers.method_pairs import CLASSES, FACTS
from tests.helpers.numerics import TOLERANCE
from tests.helpers.parts import model_config
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.tiers import thinned

QUANTIZED = model_config(MODEL, quantize="int8")
# A low rate for the last quarter of a run.
DROP: dict[str, Any] = {"schedule": "step", "milestones": (0.75,)}
LENGTH = "steps=8, ema_decay=0.9, eval_every_steps=4"
SHORT = {
    "data": 'DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    "model": 'ConvNetConfig(name="convnet", width=0.0625, quantize="int8")',
    "optimizer": "SGDConfig(learning_rate=0.1, "
    "schedule=StepSchedule(milestones=(0.75,)))",
    "train": f"TrainConfig({LENGTH})",
    "checkpoint": "CheckpointConfig(every_steps=2)",
    "logging": "LoggingConfig(every_steps=4, tensorboard=False)",
}


def is_statistic(path: str) -> bool:
    return path.startswith("model_state") and "rng" not in path


@pytest.mark.slow
def test_ranges_and_statistics_stay_late_in_a_run():
    """After six of eight steps, while the weights go on."""
    steps = take_steps(layered({"steps": 8}, DROP, model=QUANTIZED))
    states = [by_path(state) for state in steps.states]
    paths = [path for path in states[0] if is_statistic(path)]
    assert any(path.endswith("/low") for path in paths)
    assert any(path.endswith("/var") for path in paths)
    for path in paths:
        if path.endswith("/high"):
            assert states[0][path] == 0 < states[1][path]
        if path.endswith(("/high", "/var")):
            assert (states[2][path] != states[3][path]).any(), path
        for later in states[7:]:
            np.testing.assert_array_equal(later[path], states[6][path])
    kernel = next(path for path in states[0] if path.endswith("stem/kernel"))
    assert (states[8][kernel] != states[6][kernel]).any()
    assert np.isfinite(steps.metrics["loss"]).all()


@pytest.mark.slow
def test_ranges_stay_at_no_higher_rate_than_the_schedule_has_there():
    """Skipped steps put the schedule back: here to before its drop, where they stay."""
    train = {"spike_sigma": 1e-9}
    config = layered(
        {**train, "steps": 24},
        {**DROP, "momentum": 0.0, "learning_rate": 1e-6},
        model=QUANTIZED,
    )
    found = take_steps(config)
    skipped, rate = found.metrics["skipped"], found.metrics["learning_rate"]
    assert 0 < skipped[:18].sum() < 18
    np.testing.assert_allclose(rate[:18], 1e-6, rtol=1e-6)
    np.testing.assert_allclose(rate[18:], 1e-7, rtol=1e-6)
    step = 18 + int(np.argmin(skipped[18:]))
    assert not skipped[step]
    before, after = (by_path(found.states[i]["params"]) for i in (step, step + 1))
    moved = [np.sum(((after[path] - before[path]) / 1e-7) ** 2) for path in before]
    norm = found.metrics["grad_norm"][step]
    assert np.sqrt(np.sum(moved)) == pytest.approx(norm, rel=1e-6)


def of_mesh(parallel: dict[str, Any], train: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the last state of a run on some devices."""
    config = layered(train, DROP, model=QUANTIZED, parallel=ParallelConfig(**parallel))
    return by_path(take_steps(config).states[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parallel", "train"),
    [
        ({"data": 4, "model": 2}, {"remat": "full"}),
        pytest.param(
            {"data": 4, "pipeline_stages": 2},
            {"accumulate_steps": 2},
            marks=pytest.mark.plugins,
        ),
    ],
)
def test_ranges_are_those_of_the_global_batch(
    parallel: dict[str, int], train: dict[str, Any]
):
    """Eight devices come to what one does, before and after the ranges stay."""
    alone = with_devices(8, of_mesh, {"data": 1, "cpu_devices": 1}, train)
    shared = with_devices(8, of_mesh, parallel, train)
    assert alone.keys() == shared.keys()
    for path, x in alone.items():
        np.testing.assert_allclose(
            shared[path], x, rtol=TOLERANCE, atol=TOLERANCE, err_msg=path
        )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe and the workdir of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("undisturbed")
    config = write_recipe(folder / "recipe.py", recipe(**SHORT))
    result = Cli(folder).done("--config", config, "--workdir", folder / "run")
    assert "with fixed ranges from step 6 on" in result.stdout
    return folder


@pytest.mark.slow
def test_it_begins_with_trained_weights_and_learns_from_a_teacher(
    undisturbed: Path, cli: Cli
):
    """What is new are the ranges; weights with ranges do not fit a model without."""
    floats = {
        **SHORT,
        "model": 'ConvNetConfig(name="convnet", width=0.0625)',
        "train": f"TrainConfig({LENGTH})",
    }
    config = write_recipe(cli.directory / "floats.py", recipe(**floats))
    teacher, student = cli.directory / "teacher", cli.directory / "student"
    cli.done("--config", config, "--workdir", teacher)
    words = ["--config", undisturbed / "recipe.py", "--workdir", student]
    words += ["--model.pretrained", teacher, "--method", "distillation"]
    words += ["--method.teacher", teacher]
    done = cli.done(*words)
    assert "of model.quantize = 'int8'" in " ".join(done.stdout.split())
    assert np.isfinite(read_summary(student)["eval"]["loss"])
    back = ["--config", config, "--workdir", cli.directory / "back"]
    refused = cli(*back, "--model.pretrained", student)
    assert refused.code == 2 and "model.quantize = 'int8'" in refused.stderr


@pytest.mark.parametrize("precision", thinned(2, ["fp16", "pure_bf16"]))
def test_it_trains_in_less_precision(cli: Cli, write_config: Any, precision: str):
    config = write_config(recipe(**SHORT))
    words = ["--config", config, "--workdir", cli.directory / "run"]
    cli.done(*words, "--precision", precision)
    losses = [line["loss"] for line in read_lines(cli.directory / "run", "train")]
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("task", ["regression", "detection", "embedding"])
def test_outputs_in_units_of_the_data_are_not_rounded(task: str):
    config = Config(task=make_part(TASKS, task), model=ConvNetConfig(quantize="int8"))
    made = build_task(config, (32, 32, 3), FACTS.get(task, CLASSES))
    config = resolve_options(config, made.inferred)
    (problem,) = check_rounded(config, made)
    assert "to 256 levels" in problem.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train.freeze", "conv1*"], "never calibrated"),
        (["--model.transform", "a.py:b"], "unquantized weights"),
    ],
)
def test_what_is_refused(cli: Cli, write_config: Any, words: list[str], message: str):
    changes = {**SHORT, "train": "TrainConfig(steps=24)"}
    config = write_config(recipe(**changes))
    done = cli("--config", config, "--workdir", cli.directory / "run", *words)
    assert done.code == 2 and message in done.stderr, done.stderr
