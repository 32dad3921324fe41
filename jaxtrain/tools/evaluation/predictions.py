"""Predictions for all examples of the splits of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.config import Config
from jaxtrain.data import sources
from jaxtrain.data.batch import Batch
from jaxtrain.errors import UserError
from jaxtrain.inference.load import load_model
from jaxtrain.parallel import devices
from jaxtrain.tools.evaluation.passes import Pass, Subject
from jaxtrain.tools.evaluation.subject import task_of_model


def predict_splits(config: Config, workdir: Path) -> dict[str, np.ndarray]:
    """Predict class probabilities for all splits, with the best checkpoint of a run.

    Args:
      config: Config of the run.
      workdir: Directory of the run.

    Returns:
      Probabilities by split, float32 (n, classes), in the order of the examples; NaN
      for unreadable images.

    Raises:
      UserError: The task has no classes, or the run has no checkpoint.
      CheckpointError: The checkpoint is damaged.
    """
    devices.start("auto")
    splits = sources.load(config.data, config.seed)
    model = load_model(workdir)
    task = task_of_model(config, model, splits.train.facts, config.data)
    if not task.one_class_an_image:
        raise UserError(
            f"--workdir {workdir}: label checks require one class per image, which "
            f"task = {config.task.name!r} does not predict; leave --workdir out"
        )
    subject = Subject(
        model=model, task=task, data=config.data, size=splits.seen_size, fit=splits.fit
    )

    def probabilities(outputs: Any, batch: Batch) -> dict[str, Any]:
        return {"probabilities": model.decoder.probabilities(outputs)}

    # Unreadable images have NaN in the result, so any number of them is allowed.
    one = Pass(subject=subject, keep=probabilities, max_bad_fraction=1.0)
    found = {}
    for name, source in splits.named().items():
        kept = one(source, name).checked(name).kept
        found[name] = np.full((len(source), task.num_outputs), np.nan, np.float32)
        found[name][kept.numbers] = kept.values["probabilities"]
    return found
