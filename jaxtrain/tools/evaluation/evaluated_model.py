"""Loading of a model to evaluate, with its config and the data config."""

from pathlib import Path

from jaxtrain import own
from jaxtrain.config import Config, DataConfig, check_own, code_of_model
from jaxtrain.inference.load import load_model
from jaxtrain.inference.model import TrainedModel
from jaxtrain.parallel import devices
from jaxtrain.tools.evaluation.subject import config_of
from jaxtrain.weights.trust import trust as trust_folder


def open_model(
    workdir: Path,
    checkpoint: str | int,
    config: Config | None,
    data: DataConfig,
    *,
    trust: bool = False,
    platform: devices.Platform = "auto",
) -> tuple[TrainedModel, Config, DataConfig]:
    """Load a model for evaluation; return the model, its config and the data config.

    Args:
      workdir: Workdir of a run, or another path that `load_model` accepts.
      checkpoint: Checkpoint of a run: `best`, `latest` or a step.
      config: Config of the run. None for a model without a run.
      data: Data config of the evaluation.
      trust: Whether to import custom code named in the workdir.
      platform: Device platform; see `devices.start`.

    Raises:
      UserError: Custom code is not trusted, or the model cannot be loaded.
    """
    if trust:
        trust_folder(workdir)
    if config is not None:
        check_own(config, *code_of_model())
    own.check_allowed("data.source", data.source)
    devices.start(platform)
    model = load_model(workdir, checkpoint)
    return (model, *(config_of(model, data) if config is None else (config, data)))
