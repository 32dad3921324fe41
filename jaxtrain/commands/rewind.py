"""`main.py rewind`: a lottery ticket of a run that has pruned its weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxtrain.errors import UserError
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.whole import check_new_folder

if TYPE_CHECKING:
    from jaxtrain.tools.rewind import Ticket

EXAMPLE = "--workdir runs/sparse --to 0 --out ticket"


@dataclass(frozen=True, kw_only=True)
class RewindArguments:
    """Take the early weights of a run without those that it has pruned since."""

    # Folder of a run with prune.sparsity or prune.pattern.
    workdir: Path
    # Steps of the run after which it had the weights: 0, or those of a checkpoint.
    to: int
    # New folder for the model, as export --format safetensors writes it.
    out: Path
    # Weights whose zeros are those that are pruned: best, by the validation of the run;
    # latest; or the number of a step.
    checkpoint: str = "latest"
    # Load the parts of your own (code) that the folder names: their files are shown,
    # and compared with the recorded digests.
    trust: bool = False
    # What to run on; auto: what JAX finds, but never the CPU of a machine with a GPU.
    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"


def run(arguments: RewindArguments, signals: StopSignals) -> None:
    """Find the zeros, join them with the early weights, and write."""
    if arguments.to < 0:
        raise UserError(f"--to {arguments.to}: expected 0 or more steps")
    check_new_folder("--out", arguments.out)
    with collector.held_back():
        from jaxtrain import load_model
        from jaxtrain.config.recipe import is_run
        from jaxtrain.inference import folder
        from jaxtrain.inference.trust import trust
        from jaxtrain.parallel import devices
        from jaxtrain.records.run_log import show_table
        from jaxtrain.tools.rewind import rewind, weights_at

    if not is_run(arguments.workdir):
        raise UserError(
            f"--workdir {arguments.workdir} is not the folder of a run, which says how "
            "it began"
        )
    if arguments.trust:
        trust(arguments.workdir)
    devices.start(arguments.platform)
    sparse = load_model(arguments.workdir, arguments.checkpoint)
    early = weights_at(arguments.workdir, sparse.description, arguments.to)
    ticket = rewind(sparse, early)
    folder.write(ticket.model, arguments.out)
    show_table("rewind", {**describe(ticket, arguments), "wrote": str(arguments.out)})


def describe(ticket: "Ticket", arguments: RewindArguments) -> dict[str, str]:
    """Return the rows of a table."""
    pruned, total = sum(ticket.pruned.values()), sum(ticket.sizes.values())
    return {
        "weights": f"those after {arguments.to:,} steps",
        "pruned": f"{pruned:,} of {total:,} in {len(ticket.sizes)} kernels, "
        f"{pruned / total:.2%}",
    }
