"""Profiler callback: a trace of some steps, and a table of layer times.

The trace is written where the TensorBoard plugin XProf expects it, next to the run's
event files.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from jaxtrain import links
from jaxtrain.checkpoints.folder import unused
from jaxtrain.console import print_stderr
from jaxtrain.plugins.profiler.device_trace import read_trace
from jaxtrain.plugins.profiler.layer_times import tabulate
from jaxtrain.plugins.profiler.profile_table import describe_files, profile_table
from jaxtrain.plugins.profiler.step_profile import PROFILE, write_profile
from jaxtrain.records.workdir import TENSORBOARD
from jaxtrain.trainer.callback import Callback
from jaxtrain.trainer.run_state import RunState
from jaxtrain.trainer.trainer import StepBatch

# Number of steps that --profile traces, and number of preceding warm-up steps, which
# include compilation.
NUM_STEPS = WARM_UP = 10
# Errors after which training continues without a profile: failures of the profiler,
# full disks, and unreadable traces.
ERRORS = (OSError, RuntimeError, ValueError)


class Profiler(Callback):
    """Callback that traces a window of steps, and writes a table of layer times."""

    profiles = True

    def __init__(self, steps: tuple[int, int] | None):
        """Create a profiler.

        Args:
          steps: Numbers of completed steps at the start and end of the trace; None
            traces `NUM_STEPS` steps after `WARM_UP` warm-up steps.
        """
        self._steps = steps
        self._window: tuple[int, int] | None = None
        self._began: int | None = None
        self._programs: dict[int, Any] = {}
        self._metrics: Any = None
        self._names = contextlib.ExitStack()

    def on_start(self, run: RunState) -> None:
        self._run, self._began = run, None
        self._window = self._find_window(run)
        self._names.enter_context(_compiled_with_names(self._window))

    def on_step_start(self, run: RunState, batch: StepBatch) -> None:
        if self._window is not None and batch.stop > self._window[0]:
            if self._began is None:
                self._start(batch.start)
            program = run.trainer.programs.train_at(batch.start)
            self._programs[id(program)] = program

    def on_step_end(self, run: RunState, metrics: dict[str, Any]) -> None:
        self._metrics = metrics
        if self._window is not None and run.step >= self._window[1]:
            self._finish(run.step)

    def on_stop(self, run: RunState) -> None:
        self._finish(run.step)  # The run may stop before the end of the window.

    def close(self) -> None:
        """Stop the trace if an error interrupted the run."""
        if self._window is not None and self._began is not None:
            self._window = None
            with contextlib.suppress(*ERRORS):
                jax.profiler.stop_trace()
        self._names.close()

    def _find_window(self, run: RunState) -> tuple[int, int] | None:
        """Return the step counts at the start and end of the trace, or None."""
        step, end = run.step, run.trainer.timetable.stop_after_steps
        if self._steps is None:
            first = step + min(WARM_UP, (end - step) // 2)
            found = first, min(first + NUM_STEPS, end)
        else:
            found = max(step, self._steps[0]), min(self._steps[1], end)
        if found[0] < found[1]:
            return found
        if jax.process_index() == 0 and self._steps is not None:
            print_stderr(
                f"warning: train.profile_steps = {self._steps}: no step is profiled, "
                f"as the run trains only from step {step} to step {end}"
            )
        return None

    def _start(self, step: int) -> None:
        jax.block_until_ready(self._metrics)
        self._began, self._programs = step, {}
        options = jax.profiler.ProfileOptions()
        # Python calls would fill the trace and slow down the steps.
        options.python_tracer_level = 0
        workdir = self._run.workdir
        folder = workdir / TENSORBOARD
        # In an existing directory, JAX would follow symbolic links.
        session = unused(folder / "plugins" / "profile" / self._name_session(step))
        options.session_id = self._session = session.name
        try:
            links.check_inside(session, workdir)
            jax.profiler.start_trace(str(folder), profiler_options=options)
        except ERRORS as error:
            self._give_up(error)

    def _name_session(self, step: int) -> str:
        assert self._window is not None
        process = f"_process{jax.process_index()}" if jax.process_index() else ""
        return f"steps_{step}_to_{self._window[1]}{process}"

    def _finish(self, step: int) -> None:
        """Stop the trace; process 0 shows and writes the layer times of its devices."""
        began = self._began
        if self._window is None or began is None:
            return
        self._window = None
        try:
            jax.block_until_ready(self._metrics)
            jax.profiler.stop_trace()
            if jax.process_index() == 0:
                with self._run.clock.timing("other"):
                    self._report((began, step))
        except ERRORS as error:
            self._give_up(error)

    def _report(self, steps: tuple[int, int]) -> None:
        run, trace = self._run, f"{TENSORBOARD}/plugins/profile/{self._session}"
        workdir = run.workdir
        compiled = [c for p in self._programs.values() for c in p.programs.values()]
        profile = tabulate(
            read_trace(workdir / trace),
            [program.as_text() or "" for program in compiled],
            steps=steps,
            device_kind=jax.local_devices()[0].device_kind,
            trace=trace,
        )
        write_profile(workdir, profile, run.saved.run)
        files = describe_files(profile, str(workdir / PROFILE))
        run.log.screen.show(profile_table(profile), files)

    def _give_up(self, error: Exception) -> None:
        self._window = None
        reason = " ".join(str(error).split()) or type(error).__name__
        self._run.warn(f"the steps could not be profiled: {reason}")


@contextlib.contextmanager
def _compiled_with_names(window: tuple[int, int] | None) -> Iterator[None]:
    """Context manager: use metadata in compilation cache keys if steps are profiled.

    By default, the keys of JAX's cache exclude metadata, so a cached program may lack
    layer names.
    """
    name = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, name)
    jax.config.update(name, before or window is not None)
    try:
        yield
    finally:
        jax.config.update(name, before)
