"""`main.py average`: a model with the averaged weights of several models."""

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
    from jaxtrain.plugins.averaging.average import Averaged

EXAMPLE = "runs/seed0 runs/seed1 runs/seed2 --out soup --greedy"


@dataclass(frozen=True, kw_only=True)
class AverageArguments:
    """Average the weights of finished runs of one recipe (model soups)."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = field(
        (),
        help="Directories of runs or models, or weight files; the first must be the "
        "directory of a run, whose validation split is used for all models.",
    )
    out: Path = field(
        help="New directory for the averaged model, in the format of export --format "
        "safetensors.",
    )
    greedy: bool = field(
        False,
        help="Greedy soup: add models to the average one by one, best first, and skip "
        "models that worsen the validation metric of the average.",
    )
    images: int = field(
        10_000,
        help="Number of training images to recompute batch-norm statistics with; 0: "
        "average the statistics of the models.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint of the runs: best (by the monitored metric), latest, or a "
        "step number.",
    )
    trust: bool = trust_option("the directories require")
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


def run(arguments: AverageArguments, signals: StopSignals) -> None:
    """Average the models, evaluate the averaged model, and write the model."""
    if arguments.images < 0:
        raise UserError(f"--images {arguments.images}: expected 0 or more")
    check_new_folder("--out", arguments.out)
    with collector.held_back():
        from jaxtrain import load_model
        from jaxtrain.config.recipe import is_run, read_run
        from jaxtrain.inference import folder
        from jaxtrain.parallel import devices
        from jaxtrain.plugins.averaging.average import average
        from jaxtrain.records.run_log import show_table
        from jaxtrain.tools.joinable import have_common_validation
        from jaxtrain.weights.trust import trust

    places = [Path(text) for text in arguments.models]
    if not places or not is_run(places[0]):
        given = arguments.models[0] if places else "nothing"
        raise UserError(
            f"average {given}: the first model is not the directory of a run, whose "
            "validation split is used for all models: give a run first, as in average "
            "runs/seed0 runs/seed1 --out soup"
        )
    config = read_run(places[0])
    if arguments.trust:
        for place in places:
            trust(place)
    check_own(config, *code_of_model(), "data.source")
    devices.start(arguments.platform)
    models = [
        load_model(place, arguments.checkpoint if is_run(place) else "best")
        for place in places
    ]
    found = average(
        models,
        config,
        num_images=arguments.images,
        greedy=arguments.greedy,
        judged_by_validation=have_common_validation(
            [read_run(place) for place in places if is_run(place)]
        ),
    )
    folder.write(found.model, arguments.out)
    show_table("average", describe(found, arguments))


def describe(found: "Averaged", arguments: AverageArguments) -> dict[str, str]:
    """Return the rows of the printed table: models, averaged model, and output path."""
    rows = {}
    for number, name in enumerate(arguments.models):
        told = f"{found.values[number]:.4f}" if found.values else "not evaluated"
        rows[name] = told + ("" if number in found.used else ", left out")
    rows["mean"] = f"of {len(found.used)} models, not evaluated"
    if found.goal is not None:
        told = f"{found.value:.4f} of {len(found.used)} models"
        rows["mean"] = f"{told} ({found.goal.metric} of the validation split)"
    rows["statistics"] = "averaged over the models"
    if arguments.images:
        rows["statistics"] = f"from up to {arguments.images:,} training images"
    return {**rows, "wrote": str(arguments.out)}
