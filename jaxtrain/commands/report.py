"""`main.py report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

if TYPE_CHECKING:
    from jaxtrain.parallel.devices import Platform
    from jaxtrain.report.history import History

EXAMPLE = "--workdir runs/digits"
COMPARISON = "comparison.html"


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """Write a page on a run: results, curves, mistakes, config; or compare runs."""

    # Folder of the run, finished or not.
    workdir: Path
    # The page to write; None: report.html in the folder, or comparison.html.
    out: Path | None = None
    # Lay these runs beside it, on one page.
    compare: tuple[Path, ...] = ()
    # Load the parts of your own (code) that the folder names: their files are shown,
    # and compared with the recorded digests.
    trust: bool = False
    # What predicts examples; auto: what JAX finds, but never the CPU of a machine with
    # a GPU.
    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"


def run(arguments: ReportArguments, signals: StopSignals) -> None:
    """Write the page."""
    from jaxtrain import atomic_file
    from jaxtrain.inference.trust import trust
    from jaxtrain.records.workdir import REPORT
    from jaxtrain.report.history import read_history

    if arguments.compare and arguments.platform != "auto":
        raise UserError(
            f"--platform {arguments.platform} has no effect with --compare, which "
            "predicts nothing: leave it out"
        )
    if arguments.compare and arguments.trust:
        raise UserError(
            "--trust has no effect with --compare, which loads no code: leave it out"
        )
    history = read_history(arguments.workdir)
    if arguments.trust:
        trust(arguments.workdir)
    if arguments.compare:
        name, page = COMPARISON, _comparison(history, arguments.compare)
    else:
        name, page = REPORT, _report(history, arguments.platform)
    out = arguments.out or arguments.workdir / name
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(out, page)
    except OSError as error:
        given = f"--out {out}" if arguments.out else f"--workdir {arguments.workdir}"
        raise UserError(
            f"{given}: cannot write {out} ({error.strerror or error}): give --out FILE"
        ) from None
    print(f"{out} has the report")


def _report(history: "History", platform: "Platform") -> bytes:
    from jaxtrain.parallel import devices
    from jaxtrain.report.page import make_page
    from jaxtrain.tools.examples import examples_of

    devices.start(platform)
    return make_page(history, examples_of(history))


def _comparison(history: "History", others: tuple[Path, ...]) -> bytes:
    from jaxtrain.report.compare import MAX_RUNS, make_comparison
    from jaxtrain.report.history import read_history

    if len(others) >= MAX_RUNS:
        raise UserError(
            f"--compare: {len(others) + 1} runs; a page can be read with up to "
            f"{MAX_RUNS}: leave some out"
        )
    histories = [history]
    for workdir in others:
        other = read_history(workdir)
        if other.workdir.resolve() in [h.workdir.resolve() for h in histories]:
            raise UserError(f"--compare {workdir}: this run is there already")
        histories.append(other)
    return make_comparison(histories)
