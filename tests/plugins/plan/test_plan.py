"""The command `plan`: what it tells, writes, keeps and refuses."""

import importlib.metadata
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain.checkpoints.retention import check_space
from jaxtrain.config import (
    CheckpointConfig,
    Config,
    DataConfig,
    ParallelConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.parallel.gpus import GPUS, gpu_name
from jaxtrain.plugins.plan import gpu_compiler, planning
from jaxtrain.plugins.plan.bounds import LAUNCH_SECONDS, bound
from jaxtrain.plugins.plan.collectives import Collective
from jaxtrain.plugins.plan.facts import compile_facts
from jaxtrain.plugins.plan.plan import Plan, make_planner, usable_bytes
from jaxtrain.plugins.plan.targets import Target, parse_target
from tests.helpers.needs import need
from tests.helpers.processes import Cli
from tests.helpers.rows import each_row
from tests.plugins.plan.fake_plans import facts, use_fake_compiler

TINY = """Config(
    data=DataConfig(source="synthetic:8x8x1/4/512", batch_size=16),
    model=ConvNetConfig(name="convnet", width=0.125),
    optimizer=SGDConfig(learning_rate=0.1),
    train=TrainConfig(steps=100),
)"""
CONFIG = Config(
    data=DataConfig(source="synthetic:8x8x1/4/512", batch_size=16),
    optimizer=SGDConfig(learning_rate=0.1),
)
H100 = GPUS["h100"]
# Names in plan.json that others read.
PROMISED = {
    *("target", "num_devices", "fits", "state_bytes", "peak_bytes", "hbm_bytes"),
    *("num_kernels", "flops", "collectives", "images_per_second_bound", "bound_by"),
}


def read(cli: Cli, name: str = "plan.json") -> dict[str, Any]:
    return json.loads((cli.directory / "runs" / "recipe" / name).read_text())


@each_row(
    ("text", "nodes", "expected", "shown"),
    [
        ("h100", 1, Target(name="h100", num_devices=1), "h100"),
        ("H100x8", 1, Target(name="h100", num_devices=8), "h100x8"),
        ("h100x8", 3, Target(name="h100", num_devices=24, num_nodes=3), "h100x8 on 3"),
        ("a100-40x4", 1, Target(name="a100-40", num_devices=4), "a100-40x4"),
        ("cpux16", 1, Target(name="cpu", num_devices=16), "cpux16"),
        ("here", 1, Target(name="here", num_devices=None), "here"),
    ],
)
def test_targets(text: str, nodes: int, expected: Target, shown: str):
    assert parse_target(text, nodes) == expected
    assert str(expected).startswith(shown)


@each_row(
    ("text", "nodes", "told"),
    [
        ("h10", 1, "did you mean 'h100'?"),
        ("tpu", 1, "expected v100, a100, a100-40"),
        ("h100x0", 1, "numbers above 0"),
        ("h100x", 1, "numbers above 0"),
        ("h100", 0, "numbers above 0"),
        ("here", 2, "`here` means all devices of this"),
    ],
)
def test_targets_that_there_are_not(text: str, nodes: int, told: str):
    with pytest.raises(UserError, match=f"--target {text}.*{told}"):
        parse_target(text, nodes)


def test_gpus_are_known_by_what_cuda_calls_them():
    for name, gpu in GPUS.items():
        assert gpu_name(gpu.device_kind) == name
    assert gpu_name("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "rtx6000pro"
    assert gpu_name("NVIDIA A100-SXM4-40GB") == "a100-40"
    others = ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA L40S", "cpu"]
    assert [gpu_name(kind) for kind in others] == [None] * 4


def test_a_kernel_is_bound_by_what_takes_it_longest():
    """Three kernels: of many FLOPs, of many bytes, twice of nothing."""
    kernels = [(10**6, 10**12, 1), (10**9, 10**6, 1), (0, 0, 2)]
    found = bound(facts(kernels=kernels), H100, 8)
    compute, memory = 1e12 / 989.4e12, 1e9 / 3352.32e9
    assert found.step_seconds == pytest.approx(compute + memory + 2 * LAUNCH_SECONDS)
    assert found.bound_by == "FLOPs"
    assert found.alone["FLOPs"] == pytest.approx(compute + 1e6 / 989.4e12)
    assert found.alone["HBM bytes"] == pytest.approx(memory + 1e6 / 3352.32e9)
    assert found.alone["launches"] == pytest.approx(4 * LAUNCH_SECONDS)


@each_row(
    ("group", "seconds", "by"),
    [
        (range(8), 1e9 / 450e9, "links"),
        # Eight adapters of a node share what one ring sends to the next.
        (range(16), 1e9 / (8 * 50e9), "network"),
        # One device of each node: its adapter carries all.
        ((0, 8), 1e9 / 50e9, "network"),
    ],
)
def test_collectives_are_bound_by_links_or_network(group: Any, seconds: float, by: str):
    exchanges = [Collective("collective-permute", "f32", 10**9, tuple(group))]
    found = bound(facts(kernels=[(0, 0, 1)], exchanges=exchanges), H100, 8)
    assert found.step_seconds == pytest.approx(seconds)
    assert found.bound_by == by


def test_what_has_no_faster_products_is_computed_as_float32():
    v100 = GPUS["v100"]
    one = [(0, 10**13, 1)]
    seconds = bound(facts(kernels=one, products="bfloat16"), v100, 1).step_seconds
    assert seconds == pytest.approx(1e13 / 15.7e12)
    seconds = bound(facts(kernels=one, products="float16"), v100, 1).step_seconds
    assert seconds == pytest.approx(1e13 / 125e12)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compile in this process, and keep facts in the folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu_compiler, "call", lambda _, function, *job: function(*job))


@pytest.mark.usefixtures("here")
def test_a_plan_for_a_cpu(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    words = ["plan", "--config", write_config(TINY), "--target", "cpu"]
    first = cli.done(*words)
    assert "compiling a program for cpu" in first.stderr
    plan = read(cli)
    assert plan.keys() >= PROMISED
    assert plan["target"] == "cpu" and plan["num_devices"] == 1 and plan["fits"]
    assert plan["state_bytes"] < plan["peak_bytes"] and plan["collectives"] == {}
    assert plan["images_per_second_bound"] is None  # Nothing is known of CPUs.
    assert "peak rates of cpu are unknown" in first.stdout

    def compile_nothing(*_: object) -> None:
        raise AssertionError("it was compiled already")

    monkeypatch.setattr(gpu_compiler, "call", compile_nothing)
    second = cli(*words)
    assert second.code == 0 and second.stdout == first.stdout and not second.stderr
    assert read(cli) == plan
    # Anything else is compiled: other flags of XLA, another batch.
    for more, env in ([], {"XLA_FLAGS": "--x"}), (["--batch", "32"], {}):
        with pytest.raises(AssertionError, match="already"):
            cli(*words, *more, **env)
    # And what is damaged.
    (kept,) = (tmp_path / "cache").rglob("plans/*.json")
    kept.write_text(kept.read_text().replace('"num_params": ', '"num_params": 1'))
    with pytest.raises(AssertionError, match="already"):
        cli(*words)


def test_a_plan_for_gpus(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    use_fake_compiler(monkeypatch, tmp_path)
    words = ["plan", "--config", write_config(TINY), "--target", "h100x4"]
    result = cli.done(*words, "--price", "2", "--compare", "fsdp,data_parallel,fsdp")
    plan = read(cli)
    seconds = 1e12 / 989.4e12
    assert plan["images_per_second_bound"] == pytest.approx(16 / seconds)
    assert plan["bound_by"] == "FLOPs" and plan["target"] == "h100x4"
    assert plan["hours_bound"] == pytest.approx(100 * seconds / 3600)
    assert plan["cost_bound"] == pytest.approx(plan["hours_bound"] * 2 * 4)
    assert plan["usable_bytes"] == int(0.75 * H100.memory)
    assert list(plan["compare"]) == ["fsdp", "data_parallel"]
    assert "989 TFLOP/s of bfloat16" in result.stdout


def test_the_largest_batch(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Of multiples of the devices; more steps a call than its epochs have are fine."""
    use_fake_compiler(monkeypatch, tmp_path, lambda c: c.data.batch_size * 10**9)
    recipe = TINY.replace("steps=100", "steps=100, steps_per_call=20")
    words = ["plan", "--config", write_config(recipe), "--target", "h100x4"]
    cli.done(*words, "--batch", "max")
    assert read(cli)["batch_size"] == 60  # Of 63.7 GB.


@pytest.mark.parametrize(
    ("peak", "code", "told"),
    [
        (lambda c: 10**12 // c.train.accumulate_steps, 2, "no single change suffices"),
        (lambda c: 10**12 if c.train.remat == "none" else 1, 0, "remat full"),
    ],
)
def test_what_to_change(
    peak: Any,
    code: int,
    told: str,
    cli: Cli,
    write_config: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    compiled = use_fake_compiler(monkeypatch, tmp_path, peak)
    recipe = TINY.replace("train=", "parallel=ParallelConfig(batch_norm=8), train=")
    words = ["--config", write_config(recipe), "--target", "h100x2"]
    result = cli("plan", *words)
    assert result.code == code, result.stderr
    assert told in result.stderr + result.stdout
    plan = read(cli)
    assert not plan["fits"]
    changes = plan["changes"]
    assert {"precision bf16", "parallel.preset fsdp", "train.remat full"} <= set(
        changes
    )
    # A change that the config cannot have is told, and the others are compiled.
    assert "parallel.batch_norm" in changes["train.accumulate_steps 4"]["error"]
    assert len(compiled) == len(changes)


@each_row(
    ("words", "told"),
    [
        (["--target", "h100", "--price", "-1"], "--price -1.0: expected 0 or more"),
        (["--target", "h100", "--batch", "0"], "--batch 0: expected a number above 0"),
        (
            ["--target", "h100", "--compare", "fsdp,tensr"],
            "unknown preset 'tensr'; expected data_parallel, fsdp, zero1, tensor, "
            "spatial, 2d; did you mean 'tensor'?",
        ),
        (
            ["--target", "h100x512", "--batch", "max"],
            "multiple of 512 examples, but the training split has only 461",
        ),
        (["--target", "h100", "--check"], "has no NVIDIA GPU, but the plan is for h1"),
        (
            ["--target", "h100", "--out", "/dev/null/x"],
            "--out /dev/null/x: not writable",
        ),
    ],
)
def test_bad_input(
    words: list[str],
    told: str,
    cli: Cli,
    write_config: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    use_fake_compiler(monkeypatch, tmp_path)
    monkeypatch.setattr(planning, "nvidia_gpus", list)
    result = cli("plan", "--config", write_config(TINY), *words)
    assert result.code == 2 and told in result.stderr, result.stderr


def test_no_environment(cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_compiler, "PLUGINS", ())
    words = ["plan", "--config", write_config(TINY), "--target", "h100"]
    result = cli(*words, JAXTRAIN_GPU_COMPILER="/nowhere")
    assert result.code == 2
    assert "$JAXTRAIN_GPU_COMPILER = /nowhere" in result.stderr
    assert "create .venv-gpu-compiler with `make gpu-compiler`" in result.stderr


def test_a_plugin_of_another_version(monkeypatch: pytest.MonkeyPatch):
    versions = {"jaxlib": "0.10.2", "jax-cuda12-plugin": "0.9.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(UserError, match=r"0\.10\.2, .*found jax-cuda12-plugin 0\.9"):
        gpu_compiler.check_versions()
    versions["jax-cuda13-plugin"] = "0.10.2"
    gpu_compiler.check_versions()


def test_flags_of_the_config_reach_the_gpu_compiler(monkeypatch: pytest.MonkeyPatch):
    """Which reads them when it starts; those of the user win."""
    seen = []

    def devices(target: Target) -> None:
        seen.append(os.environ["XLA_FLAGS"])
        raise UserError("far enough")

    monkeypatch.setattr(gpu_compiler, "check_versions", lambda: None)
    monkeypatch.setattr(gpu_compiler, "devices", devices)
    own = "--xla_gpu_all_reduce_combine_threshold_bytes=1"
    monkeypatch.setenv("XLA_FLAGS", own)
    config = replace(CONFIG, parallel=ParallelConfig(xla_flags="overlap"))
    with pytest.raises(UserError, match="far enough"):
        compile_facts([config], parse_target("h100"))
    assert "--xla_gpu_enable_latency_hiding_scheduler=true" in seen[0]
    assert seen[0].endswith(own) and seen[0].count("all_reduce_combine") == 1


@each_row("text", ["a lot", "0", "-1", "nan", "inf"])
def test_a_fraction_of_memory_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", text)
    with pytest.raises(UserError, match=f"MEM_FRACTION = '{text}'"):
        usable_bytes(H100)


def test_data_are_kept_on_a_gpu_that_has_the_room(monkeypatch: pytest.MonkeyPatch):
    """4 GB of images: a quarter of 60 GiB is more, a quarter of 1.7 GiB is not."""
    data = replace(CONFIG.data, source="synthetic:256x256x3/10/20000")
    config, target = replace(CONFIG, data=data), parse_target("h100")
    assert make_planner(config, target)[1].data.cache == "device"
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.02")
    assert make_planner(config, target)[1].data.cache == "stream"


@pytest.mark.slow
def test_a_process_that_dies_is_told():
    cpu = parse_target("cpu")
    with pytest.raises(UserError, match="was killed, probably out of memory"):
        gpu_compiler.call(cpu, signal.raise_signal, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited with code 3 without a result"):
        gpu_compiler.call(cpu, os._exit, 3)


@pytest.mark.slow
def test_a_process_with_another_jax_is_refused(monkeypatch: pytest.MonkeyPatch):
    version = jax.__version__
    monkeypatch.setattr(jax, "__version__", "9.9.9")
    with pytest.raises(UserError, match=rf"expected JAX 9\.9.*{version}"):
        gpu_compiler.call(parse_target("cpu"), len, "")


@pytest.mark.slow
def test_a_plan_for_simulated_devices_is_checked(cli: Cli, write_config: Any):
    words = ["plan", "--config", write_config(TINY), "--target", "cpux2", "--check"]
    cli.done(*words, "--compare", "fsdp")
    plan = read(cli)
    assert plan["num_devices"] == 2 and plan["mesh"] == {"data": 2}
    reduced = plan["collectives"]["all-reduce"]
    assert reduced["bytes"] >= 4 * plan["num_params"] and reduced["dtypes"] == ["f32"]
    assert plan["compare"]["fsdp"]["mesh"] == {"fsdp": 2}
    check = plan["check"]
    assert check["step_seconds"] > 0
    assert check["planned_bytes"] == plan["peak_bytes"]


@pytest.mark.slow
def test_unknown_flags_of_xla(cli: Cli, write_config: Any):
    words = ["plan", "--config", write_config(TINY), "--target", "cpu"]
    result = cli(*words, XLA_FLAGS="--xla_nonsense=1")
    assert result.code == 2
    assert "$XLA_FLAGS = '--xla_nonsense=1'" in result.stderr


@pytest.mark.slow
@pytest.mark.gpu_compiler
def test_a_plan_with_the_gpu_compiler(cli: Cli, write_config: Any, tmp_path: Path):
    need(gpu_compiler.COMPILER)
    words = ["--config", write_config(TINY), "--target", "h100"]
    cli.done("plan", *words, XDG_CACHE_HOME=str(tmp_path))
    plan = read(cli)
    assert plan["device_kind"] == H100.device_kind
    assert 0 < plan["num_kernels"] < 200 and plan["flops"] > 0
    assert plan["state_bytes"] < plan["peak_bytes"] < plan["hbm_bytes"]
    assert plan["bound_by"] == "launches"


@pytest.mark.slow
@pytest.mark.gpu_compiler
def test_layouts_side_by_side(cli: Cli, write_config: Any, tmp_path: Path):
    need(gpu_compiler.COMPILER)
    recipe = TINY.replace("width=0.125", "width=1").replace("size=16", "size=64")
    recipe = recipe.replace("train=", "parallel=ParallelConfig(batch_norm=8), train=")
    words = ["--config", write_config(recipe), "--target", "h100x8"]
    compare = ["--compare", "data_parallel,fsdp"]
    cli.done("plan", *words, *compare, XDG_CACHE_HOME=str(tmp_path))
    plan = read(cli)
    shared, whole = plan["compare"]["fsdp"], plan["compare"]["data_parallel"]
    assert whole["collectives"] == plan["collectives"]
    assert whole["wire_bytes"] == pytest.approx(whole["minimum_wire_bytes"], rel=0.01)
    assert shared["state_bytes"] < whole["state_bytes"]
    assert {"all-gather", "reduce-scatter"} <= set(shared["collectives"])
    # The same facts as a plan has.
    scaled = ["--config", words[1], "--mode", "strong", "--devices", "8"]
    more = ["--compile-only", "--target", "h100"]
    cli.done("scale", *scaled, *more, XDG_CACHE_HOME=str(tmp_path))
    scaling = read(cli, "scaling.json")
    assert scaling["target"] == "h100" and not scaling["simulated"]
    (run,) = scaling["runs"]
    assert run["collectives"] == plan["collectives"]
    assert run["peak_bytes_per_device"] == plan["peak_bytes"]


def test_a_plan_names_the_disk_that_the_run_demands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save = CheckpointConfig(keep=2, keep_best=3)
    state = {"params": jax.ShapeDtypeStruct((25,), np.float32)}
    config = replace(CONFIG, checkpoint=save, train=TrainConfig(steps=45))
    planner, resolved = make_planner(config, parse_target("cpu"))
    plan = Plan(planner=planner, config=resolved, facts=facts(checkpoint_bytes=100))
    # Those that are kept, one read back and one being written.
    assert plan.disk_bytes == 100 * (2 + 3 + 2)

    def check(free: int) -> None:
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        check_space(tmp_path, state, save)

    check(plan.disk_bytes)
    with pytest.raises(UserError, match="of free space"):
        check(plan.disk_bytes - 1)
