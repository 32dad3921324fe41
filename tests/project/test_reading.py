"""The code that one has to read to follow a step: files and frames are counted."""

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxtrain import __main__, invocation
from tests.helpers.processes import ROOT
from tests.helpers.recipes import recipe, write_recipe

COUNT = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(sum(name.partition(".")[0] == "jaxtrain" for name in sys.modules))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "limit"),
    [("jaxtrain.training.step", 60), ("jaxtrain.trainer.trainer", 150)],
)
def test_importing_a_module_reads_few_files(module: str, limit: int):
    words = [sys.executable, "-c", COUNT, module]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True)
    assert int(done.stdout) < limit


class Found(Exception):
    """The stack at the first gradient."""


@pytest.mark.slow
def test_few_frames_stand_above_a_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From `main.py` on, which is one more than is counted here."""
    frames: list[str] = []

    def value_and_grad(*args: Any, **given: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            stack = traceback.extract_stack()
            ours = [
                f for f in stack if Path(f.filename).is_relative_to(ROOT / "jaxtrain")
            ]
            frames.extend(f"{Path(f.filename).name}: {f.name}" for f in ours)
            raise Found

        return call

    config = write_recipe(tmp_path / "recipe.py", recipe())
    words = ["main.py", "--config", str(config), "--workdir", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(invocation, "note", lambda *args: None)
    monkeypatch.setattr(jax, "value_and_grad", value_and_grad)
    with pytest.raises(Found):
        __main__.run()
    assert frames[0] == "__main__.py: run" and frames[-1] == "plain.py: gradients"
    assert len(frames) + 1 <= 12, frames
