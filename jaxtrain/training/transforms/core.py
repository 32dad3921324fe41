"""Built-in step transforms that a config enables."""

from jaxtrain.config import OptimizerConfig, TrainConfig
from jaxtrain.plugin import resolve
from jaxtrain.training.averages import Average
from jaxtrain.training.transforms.average import WeightAverage
from jaxtrain.training.transforms.base import StepTransform
from jaxtrain.training.transforms.guard import Guard

SPIKES = "jaxtrain.training.transforms.spikes:SpikeDetector"
RATE_FACTOR = "jaxtrain.training.transforms.plateau:RateFactor"
CORE_NAMES = ("spikes", "plateau", WeightAverage.name, Guard.name)


def core_transforms(
    optimizer: OptimizerConfig,
    train: TrainConfig,
    average: Average | None,
    *,
    total_steps: int,
    scales_loss: bool,
    sets_rate: bool = False,
) -> tuple[StepTransform, ...]:
    """Create the built-in transforms that a config enables, in order.

    Args:
      optimizer: Config section of the optimizer.
      train: Config section of the training.
      average: Weight average that evaluations use; None without averaging.
      total_steps: Number of steps of the run.
      scales_loss: Whether to scale the loss, for float16 gradients.
      sets_rate: Whether a callback scales the learning rate.
    """
    found: list[StepTransform] = []
    if train.spike_sigma is not None:
        detector, window = resolve(SPIKES), min(100, max(10, total_steps // 10))
        found.append(detector(sigma=train.spike_sigma, window=window))
    if sets_rate or optimizer.schedule.name == "plateau":
        found.append(resolve(RATE_FACTOR)())
    if average is not None:
        found.append(WeightAverage(average))
    return (*found, Guard(scales_loss))
