"""`train.profile_steps` and `--profile`: a trace of some steps, and a table of it.

The trace lies where TensorBoard's and XProf's plugins look for it, beside the event
files of the run.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from jaxtrain import links
from jaxtrain.checkpoints.folder import unused
from jaxtrain.console import tell
from jaxtrain.plugins.profiler.device_trace import read_trace
from jaxtrain.plugins.profiler.layer_times import tabulate
from jaxtrain.plugins.profiler.profile_table import describe_files, profile_table
from jaxtrain.plugins.profiler.step_profile import PROFILE, write_profile
from jaxtrain.processes.hooks import Hooks
from jaxtrain.records.workdir import TENSORBOARD
from jaxtrain.trainer.attempt import Attempt

# Steps of --profile, and those before them: the first ones compile and fill caches.
NUM_STEPS = WARM_UP = 10
# The first error of a profiler, of a full disk and of what it cannot read.
ERRORS = (OSError, RuntimeError, ValueError)


class Profiler(Hooks):
    """Traces some steps of an attempt, once, and tells where their time went."""

    profiles = True

    def __init__(self, steps: tuple[int, int] | None):
        """Take `train.profile_steps`; None: the first warm ones."""
        self._steps = steps
        self._window: tuple[int, int] | None = None
        self._began: int | None = None
        self._programs: dict[int, Any] = {}
        self._metrics: Any = None

    @contextlib.contextmanager
    def during(self, attempt: Attempt) -> Iterator[None]:
        self._attempt, self._began = attempt, None
        self._window = self._find_window(attempt)
        with _compiled_with_names(self._window):
            try:
                yield
                # The run may stop early, or for a signal.
                self._finish(attempt.step)
            finally:
                self._stop()

    def before_call(self, step: int, num_steps: int) -> None:
        if self._window is not None and step + num_steps > self._window[0]:
            if self._began is None:
                self._start(step)
            program = self._attempt.job.programs.train_at(step)
            self._programs[id(program)] = program

    def after_call(self, step: int, metrics: Any) -> None:
        self._metrics = metrics
        if self._window is not None and step >= self._window[1]:
            self._finish(step)

    def _find_window(self, attempt: Attempt) -> tuple[int, int] | None:
        """Return the steps that are left of those that are asked for."""
        step, end = attempt.step, attempt.job.setup.timetable.stop_after_steps
        if self._steps is None:
            first = step + min(WARM_UP, (end - step) // 2)
            found = first, min(first + NUM_STEPS, end)
        else:
            found = max(step, self._steps[0]), min(self._steps[1], end)
        if found[0] < found[1]:
            return found
        if jax.process_index() == 0 and self._steps is not None:
            tell(
                f"train.profile_steps = {self._steps}: nothing to profile from step "
                f"{step} to {end}"
            )
        return None

    def _start(self, step: int) -> None:
        jax.block_until_ready(self._metrics)
        self._began, self._programs = step, {}
        options = jax.profiler.ProfileOptions()
        # Calls of Python would fill the trace, and slow the steps down.
        options.python_tracer_level = 0
        workdir = self._attempt.job.workdir
        folder = workdir / TENSORBOARD
        # A new folder: JAX would write through links in one that is there.
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
        """End the trace, and tell what it says: process 0 does, of its devices."""
        began = self._began
        if self._window is None or began is None:
            return
        self._window = None
        try:
            jax.block_until_ready(self._metrics)
            jax.profiler.stop_trace()
            if jax.process_index() == 0:
                with self._attempt.clock.charging("other"):
                    self._tell((began, step))
        except ERRORS as error:
            self._give_up(error)

    def _tell(self, steps: tuple[int, int]) -> None:
        attempt, trace = self._attempt, f"{TENSORBOARD}/plugins/profile/{self._session}"
        workdir = attempt.job.workdir
        compiled = [c for p in self._programs.values() for c in p.programs.values()]
        profile = tabulate(
            read_trace(workdir / trace),
            [program.as_text() or "" for program in compiled],
            steps=steps,
            device_kind=jax.local_devices()[0].device_kind,
            trace=trace,
        )
        write_profile(workdir, profile, attempt.job.saved.run)
        told = describe_files(profile, str(workdir / PROFILE))
        attempt.log.screen.show(profile_table(profile), told)

    def _give_up(self, error: Exception) -> None:
        self._window = None
        reason = " ".join(str(error).split()) or type(error).__name__
        self._attempt.tell(f"no profile of the steps: {reason}")

    def _stop(self) -> None:
        """End a trace that an error of the run has cut off."""
        if self._window is not None and self._began is not None:
            self._window = None
            with contextlib.suppress(*ERRORS):
                jax.profiler.stop_trace()


@contextlib.contextmanager
def _compiled_with_names(window: tuple[int, int] | None) -> Iterator[None]:
    """Have programs read from the cache only if they carry the names of layers.

    JAX leaves metadata out of the key of its cache: a program of other names, or of a
    version without any, might be there.
    """
    name = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, name)
    jax.config.update(name, before or window is not None)
    try:
        yield
    finally:
        jax.config.update(name, before)
