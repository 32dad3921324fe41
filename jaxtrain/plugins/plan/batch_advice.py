"""Advice of `find-batch`: options for the recommended batch size, and their effects."""

from collections.abc import Sequence

from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.plugins.plan.batch_search import is_faster, with_batch
from jaxtrain.plugins.plan.batch_trial import Trial
from jaxtrain.plugins.plan.plan import Planner
from jaxtrain.trainer.periods import make_timetable


def describe_micro_batches(
    planner: Planner, config: Config, found: Trial, trials: Sequence[Trial]
) -> list[str]:
    """Describe the option for gradient accumulation, and its effect on training."""
    lines = [f"set --train.accumulate-steps {found.accumulate_steps}"]
    if found.accumulate_steps == config.train.accumulate_steps:
        return lines
    group, size = config.parallel.batch_norm, found.batch_size
    same = f"the batch size stays {size}, and the optimization is unchanged"
    if group == "global":
        same += (
            "; but batch norm, if the model has any, computes statistics over "
            f"{found.micro_batch_size} examples instead of {config.micro_batch_size} "
            "(set parallel.batch_norm to keep this number constant)"
        )
    else:
        same += f", including batch norm in groups of {group} examples"
    return [*lines, same]


def describe_batch(
    planner: Planner, config: Config, found: Trial, trials: Sequence[Trial]
) -> list[str]:
    """Describe the option that sets the batch size, and its effect on training."""
    lines = [f"set --data.batch-size {found.batch_size}"]
    old, new = config.data.batch_size, found.batch_size
    if new != old:
        steps = [_num_steps(planner, config, size) for size in (new, old)]
        lines.append(
            f"this changes the training: {steps[0]} steps instead of {steps[1]}"
        )
    rate = config.optimizer.learning_rate
    if new != old and rate is not None:
        linear, root = rate * new / old, rate * (new / old) ** 0.5
        lines.append(
            f"optimizer.learning_rate = {rate:g} is for a batch of {old}, and is not "
            f"scaled: linear scaling gives {linear:.3g}, square-root scaling "
            f"{root:.3g}; find a learning rate with find-lr"
        )
    fitting = [trial for trial in trials if trial.fits]
    best = max(fitting, key=lambda trial: trial.images_per_second or 0)
    if is_faster(best, found):
        lines.append(
            f"--data.batch-size {best.batch_size} is the fastest batch tried: "
            f"{best.images_per_second:,.0f} images/s"
        )
    return lines


def _num_steps(planner: Planner, config: Config, size: int) -> str:
    """Format the number of steps of a run with batch size `size`."""
    splits = planner.splits
    try:
        times = make_timetable(
            with_batch(config, size),
            len(splits.train),
            has_validation=splits.validation is not None,
        )
    except UserError:
        return "?"  # The config's batch size may exceed the size of the training split.
    return f"{times.total_steps:,}"
