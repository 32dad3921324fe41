"""`main.py ensemble`: a model that averages the predictions of several runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.fields import check_own, code_of_model
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.atomic_output import check_new_folder

if TYPE_CHECKING:
    from jaxtrain.tools.ensemble import Ensembled

EXAMPLE = "runs/seed0 runs/seed1 runs/seed2 --out runs/ensemble"


@dataclass(frozen=True, kw_only=True)
class EnsembleArguments:
    """Combine finished runs of one recipe into one model (deep ensemble)."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional] = field(
        (),
        help="Directories of finished runs. The first run defines the data and the "
        "recipe of the ensemble.",
    )
    out: Path = field(
        help="New directory for the ensemble; evaluate, predict and export accept it "
        "like the directory of a run.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint to load from each run: best (by the validation metric), "
        "latest, or a step number.",
    )
    trust: bool = trust_option("the directories require")
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


def run(arguments: EnsembleArguments, signals: StopSignals) -> None:
    """Combine the runs, evaluate the ensemble, and save it."""
    check_new_folder("--out", arguments.out)
    with collector.held_back():
        from jaxtrain import load_model
        from jaxtrain.config.recipe import is_run, read_run
        from jaxtrain.parallel import devices
        from jaxtrain.records.run_log import show_table
        from jaxtrain.tools.ensemble import ensemble, read_end, save
        from jaxtrain.weights.trust import trust

    paths = [Path(text) for text in arguments.runs]
    if len(paths) < 2:
        raise UserError(
            f"ensemble: expected two or more runs, got {len(paths)}; give directories "
            f"of runs, such as ensemble {EXAMPLE}"
        )
    for path in paths:
        if not is_run(path):
            raise UserError(
                f"{path} is not the directory of a run: give directories of finished "
                f"runs, such as ensemble {EXAMPLE}"
            )
        read_end(path)
        if arguments.trust:
            trust(path)
    configs = [read_run(path) for path in paths]
    check_own(configs[0], *code_of_model(), "data.source")
    devices.start(arguments.platform)
    models = [load_model(path, arguments.checkpoint) for path in paths]
    joined = ensemble(models, configs)
    save(joined, paths, arguments.out)
    show_table("ensemble", describe(joined, arguments))


def describe(made: "Ensembled", arguments: EnsembleArguments) -> dict[str, str]:
    """Return the rows of the summary table: members, metrics and output directory."""
    from jaxtrain.tasks import kind
    from jaxtrain.tasks.metrics import formatted

    main = kind(made.config.task.name).best_metric
    rows = dict.fromkeys(arguments.runs, "member")
    for name, values in zip(arguments.runs, made.each, strict=True):
        if main in (shown := formatted(values, (main,))):
            rows[name] = f"{shown[main]} ({main} of the test split)"
    shown = formatted(made.test, tuple(dict.fromkeys((main, "loss"))))
    rows |= {f"ensemble, {name}": text for name, text in shown.items()}
    return {**rows, "wrote": str(arguments.out)}
