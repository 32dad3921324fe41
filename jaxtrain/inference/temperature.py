"""The temperature that an evaluation has fitted to a run's logits."""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from jaxtrain.errors import UserError
from jaxtrain.json_files.read import read_json

# In the folder of a run.
TEMPERATURE = "temperature.json"


class FittedTemperature(TypedDict):
    """What `predict` needs of the file.

    Attributes:
      temperature: Divisor of the logits.
      step: Step of the checkpoint whose logits it was fitted to.
      tta: Views whose mean it was fitted to; None means plain images.
    """

    temperature: float
    step: NotRequired[int | None]
    tta: NotRequired[str | None]


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
    anew = f"make it anew with {fit}"
    try:
        values = read_json(path, FittedTemperature, advice=anew)
    except UserError as error:
        raise UserError(f"--calibrated: {error}") from None
    if values is None:
        raise UserError(f"--calibrated: {path} is not there: make it with {fit}")
    temperature = values["temperature"]
    if temperature <= 0:
        raise UserError(
            f"--calibrated: {path}: temperature = {temperature}, expected a number "
            f"above 0: {anew}"
        )
    step = values.get("step")
    if step is not None and step != origin["step"]:
        raise UserError(
            f"--calibrated: {path} was fitted to the checkpoint of step {step}, and "
            f"this is that of step {origin['step']}: give --checkpoint {step}, or "
            f"{fit} --checkpoint {origin['step']}"
        )
    views = values.get("tta")
    if views is not None:
        raise UserError(
            f"--calibrated: {path} was fitted to the mean of several views "
            f"({views}), and predict shows the model one: make it anew with {fit}"
        )
    return temperature
