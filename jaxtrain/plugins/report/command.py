"""`main.py report`: a page on a run, or a comparison of runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

if TYPE_CHECKING:
    from jaxtrain.parallel.devices import Platform
    from jaxtrain.plugins.report.history import History

EXAMPLE = "--workdir runs/digits"


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """Write a page on a run: results, curves, mistakes, config; or compare runs."""

    workdir: Path = field(
        help="Directory of a run, finished or not, or of a sweep, whose trials are "
        "compared.",
    )
    out: Path | None = field(
        None,
        help="HTML page to write; None: report.html or comparison.html in the "
        "directory.",
    )
    compare: tuple[Path, ...] = field(
        (),
        help="Other runs to compare with the run, on one page.",
    )
    trust: bool = trust_option()
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


def run(arguments: ReportArguments, signals: StopSignals) -> None:
    """Write the page of a run, or the comparison of several runs."""
    from jaxtrain import atomic_file
    from jaxtrain.plugins.report.history import read_history
    from jaxtrain.plugins.report.sweep import make_sweep_page
    from jaxtrain.plugins.report.sweep_file import read_sweep
    from jaxtrain.records.workdir import COMPARISON, REPORT
    from jaxtrain.weights.trust import trust

    sweep = read_sweep(arguments.workdir) if arguments.workdir.is_dir() else None
    comparing = "--compare" if arguments.compare else "a sweep" if sweep else ""
    if comparing and arguments.platform != "auto":
        raise UserError(
            f"--platform {arguments.platform} has no effect with {comparing}, which "
            "computes no predictions: leave --platform out"
        )
    if comparing and arguments.trust:
        raise UserError(
            f"--trust has no effect with {comparing}, which loads no code: leave "
            "--trust out"
        )
    if sweep is not None:
        if arguments.compare:
            raise UserError(
                f"--workdir {arguments.workdir} is a sweep, whose trials are compared: "
                "leave --compare out, or give the directory of a trial"
            )
        name, page = COMPARISON, make_sweep_page(arguments.workdir, sweep)
    elif arguments.compare:
        history = read_history(arguments.workdir)
        name, page = COMPARISON, _comparison(history, arguments.compare)
    else:
        history = read_history(arguments.workdir)
        if arguments.trust:
            trust(arguments.workdir)
        name, page = REPORT, _report(history, arguments.platform)
    out = arguments.out or arguments.workdir / name
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(out, page)
    except OSError as error:
        given = f"--out {out}" if arguments.out else f"--workdir {arguments.workdir}"
        raise UserError(
            f"{given}: cannot write {out} ({error.strerror or error}): give another "
            "file with --out"
        ) from None
    print(f"wrote {out}")


def _report(history: "History", platform: "Platform") -> bytes:
    from jaxtrain.parallel import devices
    from jaxtrain.plugins.report.collect import examples_of
    from jaxtrain.plugins.report.page import make_page

    devices.start(platform)
    return make_page(history, examples_of(history))


def _comparison(history: "History", others: tuple[Path, ...]) -> bytes:
    from jaxtrain.plugins.report.compare import MAX_RUNS, make_comparison
    from jaxtrain.plugins.report.history import read_history

    if len(others) >= MAX_RUNS:
        raise UserError(
            f"--compare: {len(others) + 1} runs, but a page shows at most {MAX_RUNS}: "
            "leave some runs out"
        )
    histories = [history]
    for workdir in others:
        other = read_history(workdir)
        if other.workdir.resolve() in [h.workdir.resolve() for h in histories]:
            raise UserError(
                f"--compare {workdir}: the run is given twice; give the run once"
            )
        histories.append(other)
    return make_comparison(histories)
