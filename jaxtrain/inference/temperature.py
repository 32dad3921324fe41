"""The temperature that an evaluation has fitted to a run's logits."""

import json
import math
from pathlib import Path
from typing import Any

from jaxtrain.errors import UserError

# In the folder of a run.
TEMPERATURE = "temperature.json"


def read(workdir: Path, origin: dict[str, Any]) -> float:
    """Return what the logits are divided by.

    Args:
      workdir: folder of the run.
      origin: of the model whose logits they are (`TrainedModel.origin`).

    Raises:
      UserError: none was fitted to this model, or the file is damaged.
    """
    path = workdir / TEMPERATURE
    fit = f"python main.py evaluate --workdir {workdir} --calibrate"
    try:
        values = json.loads(path.read_text())
        temperature = float(values["temperature"])
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature = {temperature} is not above 0")
    except FileNotFoundError:
        raise UserError(
            f"--calibrated: {path} is not there: make it with {fit}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--calibrated: {path} cannot be read ({error!r}): make it anew with {fit}"
        ) from None
    step = values.get("step")
    if step is not None and step != origin["step"]:
        raise UserError(
            f"--calibrated: {path} was fitted to the checkpoint of step {step}, and "
            f"this is that of step {origin['step']}: give --checkpoint {step}, or "
            f"{fit} --checkpoint {origin['step']}"
        )
    if values.get("tta") is not None:
        raise UserError(
            f"--calibrated: {path} was fitted to the mean of several views "
            f"({values['tta']}), and predict shows the model one: make it anew with "
            f"{fit}"
        )
    return temperature
