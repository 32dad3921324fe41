"""`main.py ensemble`: one model that is the mean of what several put out."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from jaxtrain.config.fields import check_own, code_of_model
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.whole import check_new_folder

if TYPE_CHECKING:
    from jaxtrain.tools.ensemble import Ensembled

EXAMPLE = "runs/seed0 runs/seed1 runs/seed2 --out runs/ensemble"


@dataclass(frozen=True, kw_only=True)
class EnsembleArguments:
    """Join finished runs of one recipe into one model (deep ensembles)."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional] = field(
        (),
        help="Folders of finished runs; the images and the recipe are those of the "
        "first.",
    )
    out: Path = field(
        help="New folder for the ensemble, like that of a run.",
    )
    checkpoint: str = field(
        "best",
        help="Weights of the runs: best, by their validation; latest; or the number "
        "of a step.",
    )
    trust: bool = field(
        False,
        help="Load the parts of your own (code) that the folders name: their files "
        "are shown, and compared with the recorded digests.",
    )
    platform: Literal["auto", "cpu", "gpu", "tpu"] = field(
        "auto",
        help="What to run on; auto: what JAX finds, but never the CPU of a machine "
        "with a GPU.",
    )


def run(arguments: EnsembleArguments, signals: StopSignals) -> None:
    """Join, evaluate and write."""
    check_new_folder("--out", arguments.out)
    with collector.held_back():
        from jaxtrain import load_model
        from jaxtrain.config.recipe import is_run, read_run
        from jaxtrain.parallel import devices
        from jaxtrain.records.run_log import show_table
        from jaxtrain.tools.ensemble import ensemble, read_end, save
        from jaxtrain.weights.trust import trust

    places = [Path(text) for text in arguments.runs]
    if len(places) < 2:
        raise UserError(
            f"ensemble is given {len(places)} runs: give two or more, such as ensemble "
            f"{EXAMPLE}"
        )
    for place in places:
        if not is_run(place):
            raise UserError(
                f"{place} is no folder of a run: give those of finished runs, such as "
                f"ensemble {EXAMPLE}"
            )
        read_end(place)
        if arguments.trust:
            trust(place)
    configs = [read_run(place) for place in places]
    check_own(configs[0], *code_of_model(), "data.source")
    devices.start(arguments.platform)
    models = [load_model(place, arguments.checkpoint) for place in places]
    made = ensemble(models, configs)
    save(made, places, arguments.out)
    show_table("ensemble", describe(made, arguments))


def describe(made: "Ensembled", arguments: EnsembleArguments) -> dict[str, str]:
    """Return the rows of a table: the members, the metrics, where it is."""
    from jaxtrain.tasks import kind
    from jaxtrain.tasks.metrics import formatted

    main = kind(made.config.task).best_metric
    rows = dict.fromkeys(arguments.runs, "member")
    for name, values in zip(arguments.runs, made.each, strict=True):
        if main in (shown := formatted(values, (main,))):
            rows[name] = f"{shown[main]} ({main} of the test split)"
    shown = formatted(made.test, tuple(dict.fromkeys((main, "loss"))))
    rows |= {f"ensemble, {name}": text for name, text in shown.items()}
    return {**rows, "wrote": str(arguments.out)}
