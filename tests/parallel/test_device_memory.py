"""What the devices have, and that a program which takes more is refused before it runs.

A machine with less memory than there is stands for models that are too large.
"""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxtrain
from jaxtrain.errors import UserError
from jaxtrain.parallel import device_memory
from jaxtrain.parallel.device_memory import available_bytes, total_bytes, usable_bytes
from jaxtrain.training.compiled import Compiled
from jaxtrain.trees import num_bytes
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

GIB = 2**30


@each_row(
    ("cgroup", "files", "left", "whole"),
    [
        ("", {}, 8 * GIB, 9 * GIB),
        # Version 2: of the group and those above it the least counts.
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max", "a/b/memory.current": "7"},
            8 * GIB,
            9 * GIB,
        ),
        (
            "0::/a/b\n",
            {
                "a/memory.max": str(2 * GIB),
                "a/memory.current": str(GIB),
                "a/memory.stat": f"file 5\ninactive_file {GIB // 2}\n",
            },
            3 * GIB // 2,
            2 * GIB,
        ),
        # A container may see its own group as the root.
        ("0::/x\n", {"memory.max": str(GIB), "memory.current": "0"}, GIB, GIB),
        (
            "5:cpu:/\n4:memory:/x\n0::/\n",
            {
                "memory/memory.limit_in_bytes": str(3 * GIB),
                "memory/memory.usage_in_bytes": str(2 * GIB),
                "memory/memory.stat": "inactive_file 7\ntotal_inactive_file 1024\n",
            },
            GIB + 1024,
            3 * GIB,
        ),
    ],
)
def test_limits_of_cgroups_count(
    cgroup: str, files: dict[str, str], left: int, whole: int, tmp_path: Path
):
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    files |= {"proc/self/cgroup": cgroup}
    files |= {
        "proc/meminfo": f"MemTotal: {9 * 2**20} kB\nMemFree: 1 kB\n"
        f"MemAvailable: {8 * 2**20} kB\nSwapTotal: 1 kB\n"
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert (available_bytes(root), total_bytes(root)) == (left, whole + 1024)


def test_of_a_gpu_what_jax_may_use_counts():
    limits = ({"bytes_limit": 5 * GIB}, {"bytes_limit": 4 * GIB}, None)
    gpus = [
        SimpleNamespace(platform="gpu", memory_stats=lambda found=found: found)
        for found in limits
    ]
    assert usable_bytes(gpus) == 4 * GIB
    assert usable_bytes(jax.devices()[:1]) == total_bytes()


def test_a_program_runs_if_its_plan_fits(monkeypatch: pytest.MonkeyPatch):
    """It takes its arguments and its results; what is donated counts once."""
    x = jnp.ones((256, 256))
    for donated, factor in ((None, 3), (0, 2)):
        limit = factor * x.nbytes + 1024
        for given, fits in ((limit, True), (limit - 2048, False)):
            monkeypatch.setattr(device_memory, "total_bytes", lambda given=given: given)
            sums = Compiled(
                lambda x, y: x + y, "a sum", "add less", donate_argnums=donated
            )
            if fits:
                assert sums(x + 0, x)[0, 0] == 2
                continue
            for _ in range(2):
                with pytest.raises(UserError, match=r"a sum needs .* GiB .*: add less"):
                    sums(x + 0, x)
            assert not sums.compiling


def test_a_program_is_compiled_for_shapes_and_dtypes():
    double = Compiled(lambda x: 2 * x)
    for dtype in (np.uint8, np.int32, np.uint8):
        assert double(np.ones(3, dtype)).dtype == dtype
    assert len(double.programs) == 2


TINY = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    model='ConvNetConfig(name="convnet", width=0.25)',
    train="TrainConfig(steps=2, eval_every_steps=1)",
    checkpoint="CheckpointConfig(every_steps=1)",
)


@pytest.mark.slow
def test_what_does_not_fit_is_refused_before_it_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    """Training, an evaluation, and predictions."""
    config = write_recipe(cli.directory / "recipe.py", TINY)
    cli.done("--config", config, "--workdir", "one")
    words = ("--config", config, "--workdir", "two")
    size = num_bytes(jaxtrain.load_model(cli.directory / "one").params)
    Image.new("L", (8, 8)).save(cli.directory / "image.png")

    def refused(limit: float, *words: Any) -> str:
        monkeypatch.setattr(device_memory, "total_bytes", lambda: int(limit))
        result = cli(*words)
        assert result.code == 2
        assert "Traceback" not in result.stderr
        return " ".join(result.stderr.split())

    told = refused(size, *words)
    assert "error: the initial state of the run needs" in told
    assert "set parallel.fsdp or a smaller" in told
    told = refused(8 * size, *words)
    assert "error: a training step needs" in told
    assert "train.remat, or use more devices" in told
    told = refused(size, "evaluate", "--workdir", "one")
    assert "error: an evaluation needs" in told
    told = refused(size, "predict", "--workdir", "one", "image.png")
    assert "error: a batch of images needs" in told


@pytest.mark.plugins
def test_memory_that_is_used_up_ends_with_one_message(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    """XLA's own error, of an array that no machine holds."""
    config = write_recipe(cli.directory / "recipe.py", TINY)
    monkeypatch.setattr(
        "jaxtrain.trainer.trainer.make_programs",
        lambda setup, run_data: jnp.zeros((2**31, 2**20)),
    )
    result = cli("--config", config, "--workdir", "run")
    assert result.code == 2
    assert "error: out of memory (RESOURCE_EXHAUSTED" in result.stderr
    assert "main.py find-batch the largest batch that fits" in result.stderr
