"""Report at the end of a run; errors become warnings, and do not fail the run."""

import jax

from jaxtrain import atomic_file
from jaxtrain.console import print_stderr
from jaxtrain.invocation import command
from jaxtrain.plugins.report.collect import collect_examples
from jaxtrain.plugins.report.history import read_history
from jaxtrain.plugins.report.page import make_page
from jaxtrain.plugins.report.sample import SampleLimits
from jaxtrain.processes import cluster
from jaxtrain.records.workdir import REPORT
from jaxtrain.trainer.run_state import RunState

# Time limit of the predictions in seconds, excluding compilation and the first batch.
MAX_SECONDS = 5.0


def write_report(run: RunState) -> None:
    """Write `report.html` on process 0; any error becomes a single warning.

    A stop signal cancels the report, because the run itself is complete.
    """
    if jax.process_index() == 0:
        _write(run)
    # The other processes wait here, because this barrier has no timeout, unlike JAX's
    # shutdown barrier at exit.
    cluster.current().barrier()


def _write(run: RunState) -> None:
    def stopped() -> bool:
        # `signals.requested` is a collective, but only process 0 runs this code.
        return run.signals.signum is not None

    path = run.workdir / REPORT
    how = f"write the report with {command('report', '--workdir', run.workdir)}"
    try:
        history = read_history(run.workdir)
        limits = SampleLimits(seconds=MAX_SECONDS, should_stop=stopped)
        examples = collect_examples(
            run.trainer, history, limits, run.trainer.data.order
        )
        if stopped():
            print_stderr(
                f"warning: {path} was not written (interrupted by a signal); {how}"
            )
            return
        atomic_file.write(path, make_page(history, examples))
        if examples.failed:
            print_stderr(
                f"warning: {path} is incomplete: {_in_a_line(examples.failed[0])}"
            )
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        print_stderr(f"warning: {path} was not written ({_in_a_line(reason)}); {how}")


def _in_a_line(text: str) -> str:
    return " ".join(text.split())
