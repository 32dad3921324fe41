"""The transform of docs/extending.md, which another package brings."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.forked import ROOT
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines

TEXT = (ROOT / "docs" / "extending.md").read_text()
CODE = TEXT.partition("# pull/transform.py\n")[2].partition("```")[0]
PLUGIN = """
from jaxtrain.plugin import Plugin

PLUGIN = Plugin(name="pull", transforms={"pull": "pull.transform:make"})
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder as a package is installed in."""
    about = tmp_path / "site" / "pull-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pull\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[jaxtrain.plugins]\npull = pull:PLUGIN\n")
    (about.parent / "pull").mkdir()
    (about.parent / "pull" / "__init__.py").write_text(PLUGIN)
    (about.parent / "pull" / "transform.py").write_text(CODE)
    return about.parent


@pytest.mark.slow
def test_its_arrays_are_saved_sharded_and_resumed_on_another_device_count(
    package: Path, tmp_path: Path
):
    changes = {
        "precision": '"fp64"',
        "data": 'DataConfig(source="digits", batch_size=32)',
        "train": "TrainConfig(steps=4, accumulate_steps=2)",
        "logging": "LoggingConfig(every_steps=1)",
    }
    config = write_recipe(tmp_path / "recipe.py", recipe(**changes))

    def train(workdir: str, devices: int, *words: str) -> str:
        env = {
            **os.environ,
            "PYTHONPATH": str(package),
            "COLUMNS": "200",
            "JAX_ENABLE_X64": "1",
            "JAX_NUM_CPU_DEVICES": str(devices),
        }
        words = ("--config", str(config), "--workdir", str(tmp_path / workdir), *words)
        command = [sys.executable, str(ROOT / "main.py"), *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "a tenth of the way" in train("whole", 1)
    train("parts", 1, "--train.stop-after-steps", "2")
    train("parts", 4, "--parallel.preset", "fsdp", "--parallel.fsdp", "4")
    whole, parts = (read_lines(tmp_path / name, "train") for name in ("whole", "parts"))
    assert [line["pulled"] for line in whole] == [2, 3, 4, 5]
    for name in ("loss", "grad_norm", "pulled", "noise"):
        found = [[line[name] for line in lines] for lines in (parts, whole)]
        np.testing.assert_allclose(*found, rtol=1e-11)


BAD = {
    "requires": ("requires=('nope',)", "requires nope, which is not installed"),
    "name": ("transforms={'a': 'pull.transform:make_named'}", "empty or not unique"),
    "attribute": ("transforms={'a': 'pull.transform:nope'}", "has no nope"),
    "section": (
        "sections={'data': 'builtins:dict'}",
        "of a plug-in's section is taken",
    ),
    "module": ("sections={'mine': 'pull.nowhere:X'}", "cannot be imported"),
    "kind": ("sections={'mine': 'builtins:dict'}", "not a subclass of"),
    "clash": ("sections={'prune': 'builtins:dict'}", "is defined by the plug-in"),
}


@pytest.mark.slow
@pytest.mark.plugins
@pytest.mark.parametrize("case", BAD)
def test_a_mistake_in_a_package_ends_with_one_message(package: Path, case: str):
    """Also where the config cannot be imported."""
    row, told = BAD[case]
    (package / "pull" / "__init__.py").write_text(
        f"from jaxtrain.plugin import Plugin\nPLUGIN = Plugin(name='pull', {row})\n"
    )
    named = CODE + "\n\ndef make_named(facts):\n    made = Pull()\n"
    named += "    made.name = 'guard'\n    return made\n"
    (package / "pull" / "transform.py").write_text(named)
    words = ["--config", "configs/digits.py", "--workdir", str(package / "run")]
    done = subprocess.run(
        [sys.executable, "main.py", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert told in done.stderr.splitlines()[-1]
