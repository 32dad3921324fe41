"""Advice on the speed of a run: bottlenecks, and options that help."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jaxtrain.config import Config, DataConfig
from jaxtrain.plugin import hints_on

# Minimum seconds of an activity (see `clock.ACTIVITIES`) that is a bottleneck.
MIN_SECONDS = 10.0
# ResNet-50 in bfloat16 reaches 0.14 on an H100 (benchmarks/RESULTS.md): its step is
# bounded by memory bandwidth.
LOW_MFU = 0.1
# Steps are a bottleneck only if they take more than this fraction of the time.
MANY_STEPS = 0.5


class Rule(NamedTuple):
    """Advice for a run in which `activity` exceeds the fraction `above` of the time."""

    activity: str
    name: str
    above: float
    text: str
    # If `helps(config)` is true, `more` and the hints of plug-ins for `occasion` are
    # appended to `text`.
    more: str = ""
    occasion: str = ""
    helps: Callable[[Config], bool] = lambda config: False


RULES = (
    Rule(
        "data_wait",
        "waiting for data",
        0.1,
        "increase data.workers, or set data.cache to device if the images fit in "
        "device memory",
        "",
        "reading files",
        lambda config: _has_image_files(config.data),
    ),
    Rule(
        "compile",
        "compilation",
        0.2,
        "compiled programs are cached for the next run (docs/command-line.md, "
        "Compilation cache), and their share is smaller in a longer run",
        "; each of data.progressive_sizes compiles a separate program",
        "",
        lambda config: bool(config.data.progressive_sizes),
    ),
    Rule(
        "evaluation",
        "evaluation",
        0.3,
        "evaluate less often (train.eval_every_epochs), or increase "
        "data.eval_batch_size",
    ),
    Rule(
        "checkpoint",
        "checkpoints",
        0.1,
        "save less often (checkpoint.every_steps), or to a faster disk",
    ),
    Rule(
        "lost",
        "lost to restarts",
        0.1,
        "save more often (checkpoint.every_steps), and find out why the run was killed",
    ),
    Rule(
        "setup",
        "start",
        0.3,
        "a one-time cost, whose share is smaller in a longer run",
        "",
        "opening files",
        lambda config: _has_image_files(config.data),
    ),
)


def _has_image_files(data: DataConfig) -> bool:
    """Whether the images are separate files, which can be packed."""
    return data.source.partition(":")[0] in ("folder", "csv", "masks", "coco", "yolo")


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Fraction of the total time in each activity, in descending order."""
    total = sum(seconds.values())
    largest = sorted(seconds, key=lambda name: -seconds[name])
    return {name: seconds[name] / total for name in largest} if total > 0 else {}


def advise(
    seconds: Mapping[str, float], mfu: float | None, config: Config | None
) -> list[str]:
    """Return bottlenecks with advice, largest first.

    Args:
      seconds: Time of the run in each of `clock.ACTIVITIES`, in seconds.
      mfu: Model FLOP utilization of the steps; None if unknown.
      config: Config of the run; None if unknown.
    """
    found = shares(seconds)
    rules = [
        rule
        for rule in RULES
        if found.get(rule.activity, 0.0) > rule.above
        and seconds[rule.activity] >= MIN_SECONDS
    ]
    rules.sort(key=lambda rule: -found[rule.activity])
    told = []
    for rule in rules:
        more = ""
        if config is not None and rule.helps(config):
            more = rule.more + hints_on(rule.occasion)
        share = f"{rule.name}, {found[rule.activity]:.0%} of the time"
        told.append(f"{share}: {rule.text}{more}")
    slow = mfu is not None and mfu < LOW_MFU
    if slow and found.get("step", 0.0) > MANY_STEPS:
        precision = "" if config is None else config.precision
        half = "" if "16" in precision else ", precision = bf16"
        told.append(
            f"steps at {mfu:.0%} of the device's peak: increase data.batch_size{half}, "
            "or for a small model train.steps_per_call"
        )
    return told
