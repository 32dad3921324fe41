"""`main.py evaluate` of a short run on the digits."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.cli import main
from tests.helpers.command import Result
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe

# The last batch of an evaluation is padded; the weights are averaged; the learning rate
# rises until it does harm, so that the best checkpoint, of step 20, is not the last.
RUN = recipe(
    data='DataConfig(source="digits", batch_size=64, eval_batch_size=100)',
    optimizer='OptimizerConfig(name="sgd", learning_rate=1.0, warmup_steps=29)',
    train="TrainConfig(steps=30, ema_decay=0.9, eval_every_steps=10)",
    checkpoint="CheckpointConfig(every_steps=10)",
    logging="LoggingConfig(every_steps=10, tensorboard=False)",
)


@contextlib.contextmanager
def short_run(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with a short run on the digits, `run`."""
    root = factory.mktemp("evaluate")
    path = write_recipe(root / "recipe.py", RUN)
    assert main(["--config", str(path), "--workdir", str(root / "run")]) == 0
    yield root
    shutil.rmtree(root)


def evaluate(folder: Path, words: str = "", **env: str) -> Result:
    command = ["evaluate", "--workdir", "run", "--out", "found.json", *words.split()]
    return Cli(folder)(*command, **env)


def found(folder: Path, words: str = "", **env: str) -> dict[str, Any]:
    result = evaluate(folder, words, **env)
    assert result.code == 0, result.stderr
    return json.loads((folder / "found.json").read_text())
