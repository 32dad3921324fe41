"""What `main.py scale` tells of GPUs that need not be here."""

from jaxtrain.config import Config
from jaxtrain.errors import UserError, nearest
from jaxtrain.performance.facts import Facts
from jaxtrain.performance.measure import Measurement
from jaxtrain.performance.planner import make_planner
from jaxtrain.performance.targets import GPUS, Target


def check_target(target: str, platform: str, *, timed: bool) -> None:
    """Raise UserError if the step cannot be compiled for a target, and no more."""
    if target not in GPUS:
        meant = nearest(target, GPUS, "; did you mean {!r}?")
        raise UserError(
            f"--target {target}: expected {', '.join(GPUS)}; --devices gives their "
            f"numbers{meant}"
        )
    if platform != "auto":
        raise UserError(
            f"--target {target} --platform {platform}: a step is compiled for one or "
            "the other; leave one out"
        )
    if timed:
        raise UserError(
            f"--target {target}: a GPU that need not be here cannot be timed; add "
            "--compile-only"
        )


def compile_for(target: str, config: Config, count: int) -> Measurement:
    """Compile a step for so many GPUs that need not be here."""
    planner, settled = make_planner(config, Target(name=target, num_devices=count))
    return _measurement(planner.plan(settled).facts)


def _measurement(facts: Facts) -> Measurement:
    return Measurement(
        devices=facts.num_devices,
        batch_size=facts.batch_size,
        step_seconds=None,
        state_bytes=facts.state_bytes,
        peak_bytes=facts.peak_bytes,
        collectives=facts.collectives,
        wire_bytes=facts.wire_bytes,
        minimum_bytes=facts.minimum_bytes,
    )
