"""Factory of the profiler callback."""

from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.trainer.callback import Callback


def make_profiler(config: Config, profile: bool) -> Callback | None:
    """Create the profiler; None if neither option selects steps to profile.

    Raises:
      UserError: `--profile` conflicts with the config.
    """
    steps, stages = config.train.profile_steps, config.parallel.pipeline_stages
    if not profile and steps is None:
        return None
    if profile and steps is not None:
        raise UserError(
            f"--profile with train.profile_steps = {steps}: both options select the "
            "steps to profile; give only one of the two options"
        )
    if profile and stages > 1:
        raise UserError(
            f"--profile with parallel.pipeline_stages = {stages}: a trace does not "
            "distinguish the programs of the stages; profile with "
            "parallel.pipeline_stages = 1"
        )
    # Imported here, because few runs are profiled.
    from jaxtrain.plugins.profiler.profiler import Profiler

    return Profiler(steps)
