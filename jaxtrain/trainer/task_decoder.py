"""Decoder of the model outputs of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.outputs import abstract_outputs

if TYPE_CHECKING:
    from jaxtrain.config import Config


def decoder_of(config: Config, task: Task) -> OutputDecoder:
    """Create the decoder of a task's outputs.

    Args:
      config: Resolved config of the run.
      task: Task of the run.
    """
    outputs = abstract_outputs(task, (1,), np.float32)
    facts = OutputFacts(
        task=config.task.name,
        options=config.task.as_text(),
        class_names=task.class_names,
        column_names=task.column_names,
        # Placeholder: only box decoding, which is not used here, needs the image shape.
        image_shape=(1, 1, 1),
        outputs=outputs,
        chosen={},
    )
    return type(task).decoder(facts)
