"""Schedule of pruning steps."""

from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.plugins.pruning.config import PruneConfig
from jaxtrain.trainer.timetable import Timetable

# Number of pruning steps of a gradual schedule.
NUM_PRUNINGS = 32


def pruning_steps(
    prune: PruneConfig, config: Config, timetable: Timetable
) -> tuple[int, int, int]:
    """Compute the first step, the last step and the period of pruning, in steps.

    Raises:
      UserError: `prune.start_epochs` or `prune.end_epochs` does not fit the run.
    """
    total, per_epoch = timetable.total_steps, timetable.steps_per_epoch

    def steps(name: str) -> int | None:
        epochs = getattr(prune, name)
        return None if epochs is None else round(epochs * per_epoch)

    unfreeze = timetable.unfreeze_step or 0
    start, end = map(steps, ("start_epochs", "end_epochs"))
    if start is None:
        start = 0 if config.model.pretrained is not None else total // 4
        start = start if end is None else min(start, end)
        start = max(start, min(unfreeze, total - 1))
    elif start < unfreeze:
        raise UserError(
            f"prune.start_epochs = {prune.start_epochs:g}: expected "
            f"{config.train.first_epochs:g} or more, as layers are frozen for the "
            f"first {config.train.first_epochs:g} epochs (train.freeze_epochs)"
        )
    if prune.pattern is not None:
        end = start
    elif end is None:
        end = max(start, 3 * total // 4)
    last = "prune.end_epochs" if prune.end_epochs is not None else "prune.start_epochs"
    if end < start:
        raise UserError(
            f"prune.end_epochs = {prune.end_epochs:g}: pruning ends after {end} steps, "
            f"but starts after {start} steps; set a larger prune.end_epochs, or a "
            "smaller prune.start_epochs"
        )
    if end >= total:
        raise UserError(
            f"{last} = {getattr(prune, last.partition('.')[2])}: pruning ends after "
            f"{end} steps, but the run has only {total}: decrease {last}, so that the "
            "remaining weights can adapt"
        )
    return start, end, max(1, (end - start) // NUM_PRUNINGS)
