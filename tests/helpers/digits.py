"""A finished run on the digits, which tests read, and the images it is tested on."""

from pathlib import Path

import numpy as np

from jaxtrain.cli import main
from jaxtrain.config import DataConfig
from jaxtrain.data.stores import open_digits
from tests.helpers.recipes import recipe, write_recipe

# Batch norm in groups, averaged weights; the last batch of an evaluation is padded; the
# learning rate rises until it does harm: the best checkpoint, of step 20, is not the
# last.
RUN = recipe(
    data='DataConfig(source="digits", batch_size=64, eval_batch_size=100)',
    optimizer="SGDConfig(learning_rate=1.0, warmup_steps=29)",
    train="TrainConfig(steps=30, ema_decay=0.9, eval_every_steps=10)",
    checkpoint="CheckpointConfig(every_steps=10)",
    logging="LoggingConfig(every_steps=10, tensorboard=False)",
    parallel="ParallelConfig(batch_norm=16)",
)


def train(root: Path) -> Path:
    """Train in `root/run`."""
    path = write_recipe(root / "recipe.py", RUN)
    assert main(["--config", str(path), "--workdir", str(root / "run")]) == 0
    return root / "run"


def read_test() -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8 (360, 8, 8, 1), and labels of the test split."""
    store, splits = open_digits("", DataConfig(source="digits"))
    images, labels = store.read(np.concatenate(splits["test"]))
    return np.asarray(images), np.asarray(labels)
