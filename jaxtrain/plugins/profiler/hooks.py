"""The profiler of a run, where the run asks for one."""

from jaxtrain.config import Config
from jaxtrain.processes.hooks import Hooks


def make_profiler(config: Config, profile: bool) -> Hooks | None:
    """Return the profiler of `train.profile_steps` or of `--profile`."""
    steps = config.train.profile_steps
    if not profile and steps is None:
        return None
    # Few runs need it.
    from jaxtrain.plugins.profiler.profiler import Profiler

    return Profiler(steps)
