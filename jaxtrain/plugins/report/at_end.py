"""The report that a run writes at its end, which must not be able to fail the run."""

import jax

from jaxtrain import atomic_file
from jaxtrain.console import tell
from jaxtrain.invocation import command
from jaxtrain.plugins.report.collect import collect_examples
from jaxtrain.plugins.report.history import read_history
from jaxtrain.plugins.report.page import make_page
from jaxtrain.plugins.report.sample import SampleLimits
from jaxtrain.processes import cluster
from jaxtrain.records.workdir import REPORT
from jaxtrain.trainer.run_state import RunState

# For predictions; to read and to compile comes on top.
MAX_SECONDS = 5.0


def write_report(run: RunState) -> None:
    """Write `report.html` by process 0; whatever goes wrong is one warning.

    A signal leaves it out: the run has reached its end, and nobody is to wait.
    """
    if jax.process_index() == 0:
        _write(run)
    # Here the others wait as long as it takes; at the end of Python they would count
    # JAX's seconds for its shutdown.
    cluster.current().barrier()


def _write(run: RunState) -> None:
    def stopped() -> bool:
        # No `requested`, which asks all processes.
        return run.signals.signum is not None

    path = run.workdir / REPORT
    how = f"{command('report', '--workdir', run.workdir)} writes it"
    try:
        history = read_history(run.workdir)
        limits = SampleLimits(seconds=MAX_SECONDS, should_stop=stopped)
        examples = collect_examples(
            run.trainer, history, limits, run.trainer.data.order
        )
        if stopped():
            tell(f"warning: no {path}, as a signal came; {how}")
            return
        atomic_file.write(path, make_page(history, examples))
        if examples.failed:
            tell(f"warning: {path} lacks something: {_in_a_line(examples.failed[0])}")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        tell(f"warning: no {path} ({_in_a_line(reason)}); {how}")


def _in_a_line(text: str) -> str:
    return " ".join(text.split())
