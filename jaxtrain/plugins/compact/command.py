"""`main.py compact`: channel pruning of a trained model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.atomic_output import check_new_folder

if TYPE_CHECKING:
    from jaxtrain.inference.model import TrainedModel
    from jaxtrain.plugins.compact.channels.groups import ChannelMap
    from jaxtrain.plugins.compact.compact import Compacted
    from jaxtrain.plugins.compact.importance import Importance

EXAMPLE = "--workdir runs/digits --flops 0.5 --out smaller"


@dataclass(frozen=True, kw_only=True)
class CompactArguments:
    """Prune the channels of a trained model, and write a smaller model to fine-tune."""

    workdir: Path = field(
        help="Directory of a run or, with --criterion scale, of an exported model.",
    )
    flops: float = field(
        help="Maximum FLOPs of the smaller model, as a fraction of the original "
        "model's.",
    )
    out: Path = field(
        help="New directory for the smaller model, in the format of export --format "
        "safetensors.",
    )
    criterion: Literal["taylor", "scale"] = field(
        "taylor",
        help="Importance of a channel: taylor, the change of the training loss "
        "without the channel; scale, the batch-norm scale of the channel.",
    )
    images: int = field(
        2048,
        help="With --criterion taylor: number of training images for measuring the "
        "change of the loss.",
    )
    keep: float = field(
        0.1,
        help="Minimum fraction of the channels to retain in each group of layers that "
        "share their channels.",
    )
    multiple: int = field(
        8,
        help="Round the number of channels of each group to a multiple of this number.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint of the run: best (by the monitored metric), latest, or a "
        "step number.",
    )
    verbose: bool = field(
        False,
        help="Show the remaining channels of each group, and layers that are not "
        "pruned.",
    )
    trust: bool = trust_option()
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


def run(arguments: CompactArguments, signals: StopSignals) -> None:
    """Rank and remove channels, write the smaller model, and measure its latency."""
    _check(arguments)
    with collector.held_back():
        from jaxtrain import load_model
        from jaxtrain.inference import folder
        from jaxtrain.parallel import devices
        from jaxtrain.plugins.compact.compact import Limits, compact, open_channels
        from jaxtrain.plugins.compact.onnx_times import onnx_times
        from jaxtrain.records.run_log import show_table
        from jaxtrain.weights.trust import trust

    if arguments.trust:
        trust(arguments.workdir)
    devices.start(arguments.platform)
    model = load_model(arguments.workdir, arguments.checkpoint)
    channels = open_channels(model.description)
    importance = _importance(arguments, model, channels)
    limits = Limits(
        flops=arguments.flops, keep=arguments.keep, multiple=arguments.multiple
    )
    found = compact(model, channels, importance, limits)
    folder.write(found.model, arguments.out)
    if arguments.verbose:
        show_table("channels", describe_groups(found))
    times = onnx_times([model, found.model])
    show_table("compact", describe(found, times, arguments.out))


def _check(arguments: CompactArguments) -> None:
    for name in ("flops", "keep"):
        value = getattr(arguments, name)
        if not 0 < value < 1:
            raise UserError(f"--{name} {value:g}: expected above 0 and below 1")
    for name in ("images", "multiple"):
        value = getattr(arguments, name)
        if value < 1:
            raise UserError(f"--{name} {value}: expected 1 or more")
    check_new_folder("--out", arguments.out)


def _importance(
    arguments: CompactArguments, model: "TrainedModel", channels: "ChannelMap"
) -> "Importance":
    from jaxtrain.config import check_own, code_of_model
    from jaxtrain.config.recipe import is_run, read_run
    from jaxtrain.plugins.compact.importance import by_scale, by_taylor
    from jaxtrain.tools.evaluation.subject import open_subject

    if arguments.criterion == "scale":
        return by_scale(model, channels)
    if not is_run(arguments.workdir):
        raise UserError(
            f"--workdir {arguments.workdir} is a model without data, but --criterion "
            "taylor needs training images: give the directory of a run, or choose "
            "--criterion scale"
        )
    config = read_run(arguments.workdir)
    check_own(config, *code_of_model(), "data.source")
    subject, source = open_subject(model, config, config.data, "train")
    size = config.data.batch_size
    return by_taylor(model, channels, subject, source, size, arguments.images)


def describe(
    found: "Compacted", times: tuple[float, ...] | str, out: Path
) -> dict[str, str]:
    """Return the rows of a table that compares the model before and after pruning."""

    def change(before: float, after: float, text: str) -> str:
        return f"{text.format(before)} -> {text.format(after)} ({after / before:.2f}x)"

    groups = found.channels.groups
    cut = sum(len(units) < groups[name].num_units for name, units in found.kept.items())
    rows = {
        "channels": f"fewer in {cut} of {len(groups)} groups",
        "parameters": change(*found.params, "{:,}"),
        "FLOPs per image": change(*found.flops, "{:,}"),
    }
    if isinstance(times, str):
        rows["latency"] = times
    else:
        before, after = (1e3 * seconds for seconds in times)
        told = change(before, after, "{:.3f} ms")
        rows["latency"] = f"{told} per image in ONNX Runtime, batch size 1"
    return {**rows, "wrote": str(out)}


def describe_groups(found: "Compacted") -> dict[str, str]:
    """Return the rows of a table of pruned channel groups and unpruned layers."""
    rows = {}
    for name, group in found.channels.groups.items():
        if name in found.kept:
            left = group.unit * len(found.kept[name])
            rows[name] = f"{left} of {group.channels}"
        else:
            rows[name] = f"{group.channels}, not followed by a batch norm"
    unpruned = found.channels.unpruned.items()
    return rows | {name: f"not pruned: {why}" for name, why in unpruned}
