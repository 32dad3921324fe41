"""A training run, top to bottom: config -> state -> loop -> summary."""

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxtrain import starting
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.checkpoints.retention import check_space
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import Config, own_parts
from jaxtrain.errors import CheckpointError, Interrupted
from jaxtrain.json_files.run_id import RunId
from jaxtrain.processes import cluster
from jaxtrain.processes.signals import StopSignals
from jaxtrain.processes.watchdog import Watchdog
from jaxtrain.records import workdir as workdir_lib, writers
from jaxtrain.records.folder_lock import locked
from jaxtrain.records.metrics_file import read_last
from jaxtrain.records.run_log import RunLog, show_table
from jaxtrain.records.writer import LoggedRun
from jaxtrain.trainer import agreement, evaluations
from jaxtrain.trainer.bad_steps import BadSteps
from jaxtrain.trainer.best_checkpoint import BestCheckpoint
from jaxtrain.trainer.callback import Callback, Callbacks
from jaxtrain.trainer.calls import CallQueue
from jaxtrain.trainer.clock import Clock
from jaxtrain.trainer.early_stopping import EarlyStopping, reconsider
from jaxtrain.trainer.features import keep_features
from jaxtrain.trainer.length_change import describe_jump
from jaxtrain.trainer.loop import take_steps
from jaxtrain.trainer.metric_lines import MetricLines
from jaxtrain.trainer.next_commands import NEXT_COMMANDS, show_next
from jaxtrain.trainer.plateau import Plateau
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.records import describe_data, describe_model, versions
from jaxtrain.trainer.rewind import go_back
from jaxtrain.trainer.run_state import RunState
from jaxtrain.trainer.summary import summarize
from jaxtrain.trainer.tables import describe, describe_result
from jaxtrain.trainer.trainer import Trainer
from jaxtrain.trainer.weights_rows import settled_rows
from jaxtrain.training.state import TrainState, as_dict
from jaxtrain.weights.description import MODEL
from jaxtrain.weights.spec import check_kept


def train(
    config: Config,
    workdir: Path,
    *,
    fresh: bool = False,
    resume_step: int | None = None,
    callbacks: Sequence[Callback] = (),
    signals: StopSignals | None = None,
    began: float | None = None,
) -> dict[str, Any]:
    """Train a model, or resume the run in `workdir`; return the summary of the run.

    See `jaxtrain.train` for the other arguments and errors.

    Args:
      callbacks: Callbacks, such as a profiler, to call after the core callbacks.
      signals: Signals that stop the run gracefully; None ignores signals.
      began: Start time by `time.perf_counter`. Defaults to now.

    Raises:
      StartAgainError: Data workers ended unexpectedly; the last checkpoint remains.
      Interrupted: A signal stopped the run; the state is saved.
    """
    clock = Clock(began)
    options = {"--fresh": fresh, "--resume-step": resume_step}
    agreement.check_started_alike(config, options)
    writers.check(config.logging)
    NEXT_COMMANDS.check()  # Fail before training, not at its end.
    workdir = workdir_lib.resolve_link(workdir)
    if fresh:
        check_kept(config, workdir)
    starting.begin(f"opening the data: {config.data.source}")
    old, sets_rate = None if fresh else workdir, Callbacks(callbacks).sets_rate
    trainer = Trainer(config, workdir=old, sets_rate=sets_rate)
    rows = settled_rows(trainer)
    with locked(workdir):
        finished, run_id = _open(trainer, workdir, fresh=fresh, resume_step=resume_step)
        if finished is not None:
            return finished
        show_table("jaxtrain", {**describe(trainer, workdir), **rows})
        folder = workdir / CHECKPOINTS
        with contextlib.ExitStack() as ending:
            saved = ending.enter_context(
                contextlib.closing(
                    Checkpoints(folder, config.checkpoint, trainer.best, run=run_id)
                )
            )
            saved.check_run()
            rewound = None
            if resume_step is not None:
                rewound = go_back(workdir, saved, resume_step)
            starting.begin("preparing the data, the model and its state")
            _write_description(trainer, workdir, run_id)
            run, begun, warnings = _begin(
                trainer, workdir, saved, callbacks, signals, clock
            )
            ending.enter_context(contextlib.closing(run.callbacks))
            with contextlib.closing(run.log), run.watchdog:
                run.log.show_earlier()
                for event in (rewound, begun):
                    if event is not None:
                        run.log.write("event", run.step, **event)
                run.signals.defer = True
                for message in warnings:
                    run.warn(message)
                clock.switch("other")
                take_steps(run)
                summary = _finish(run)
            if "eval" in summary:  # Missing if the run is not complete.
                show_table("result", describe_result(trainer, summary, workdir))
                run.callbacks.on_end(run, summary)
                show_next(workdir, trainer.config, trainer.task)
        return summary


def _open(
    trainer: Trainer, workdir: Path, *, fresh: bool, resume_step: int | None
) -> tuple[dict[str, Any] | None, RunId]:
    """Open the workdir in process 0, and share the result with all processes.

    Returns:
      The summary of a finished run (or None), and the id of the run.
    """
    summary, run, data = None, None, describe_data(trainer)
    agreement.check_same_data(trainer.config, data)
    if jax.process_index() == 0:
        config, total_steps = trainer.config, trainer.timetable.total_steps
        run = workdir_lib.open_workdir(
            workdir, config, data, fresh=fresh, resume_step=resume_step
        )
        if resume_step is None:
            summary = workdir_lib.read_summary(
                workdir, total_steps, config.train.early_stop_patience
            )
        if summary is None:
            folder = workdir / CHECKPOINTS
            check_space(folder, trainer.abstract_state, config.checkpoint)
        else:
            where = f"see its {workdir_lib.SUMMARY}"
            print(f"{workdir} contains a finished run: {where}")
            show_next(workdir, trainer.config, trainer.task)
    told = (summary, None if run is None else run.value)
    summary, run_id = cluster.current().gather(told)[0]
    run = RunId(run_id, str(workdir / workdir_lib.CONFIG))
    agreement.check_same_workdir(workdir, run)
    return summary, run


def _write_description(trainer: Trainer, workdir: Path, run_id: RunId) -> None:
    _ = trainer.programs  # Check inputs and metrics before any write.
    if jax.process_index() == 0:
        about = describe_model(trainer, trainer.data)
        workdir_lib.write_digested(workdir / MODEL, run_id.stamp(about.to_dict()))


def _begin(
    trainer: Trainer,
    workdir: Path,
    saved: Checkpoints,
    callbacks: Sequence[Callback],
    signals: StopSignals | None,
    clock: Clock,
) -> tuple[RunState, dict[str, Any] | None, list[str]]:
    """Restore the newest checkpoint, or create the initial state.

    Returns:
      The state of the run, the event that describes its initial weights (or None), and
      warnings about the resumed state.
    """
    parts = own_parts(trainer.config)
    state, progress, info, begun = _restore_or_create(trainer, saved)
    step, skipped = int(state.step), state.skipped_steps
    warnings: list[str] = []
    if info is not None:
        warnings += describe_jump(trainer, info["config"], step, step - skipped)
        warnings += [
            f"{file} has changed since step {step} was saved"
            for file, digest in info["own_parts"].items()
            if parts.get(file, digest) != digest
        ]
    trainer = keep_features(trainer, state)
    logged = LoggedRun(
        workdir=workdir,
        config=trainer.config,
        step=step,
        total_steps=trainer.timetable.total_steps,
        epoch=trainer.timetable.epoch,
        task=trainer.task,
        evaluated_after=trainer.evaluated_after,
    )
    _charge_earlier(workdir, clock, step, progress)
    starting.end()
    core = MetricLines(), BadSteps(), BestCheckpoint(), Plateau()
    timeout = trainer.config.train.step_timeout_seconds
    run = RunState(
        trainer=trainer,
        workdir=workdir,
        saved=saved,
        signals=signals or StopSignals(),
        callbacks=Callbacks([*core, EarlyStopping(), *callbacks]),
        clock=clock,
        log=RunLog(logged, clock.wall_seconds),
        watchdog=Watchdog(timeout, trainer.programs.compiling),
        versions=versions(),
        own_parts=parts,
        step=step,
        state=state,
        progress=progress,
        calls=CallQueue(clock.step_seconds),
        renewed=step,
    )
    return run, None if begun is None else {"event": begun}, warnings


def _charge_earlier(workdir: Path, clock: Clock, step: int, progress: Progress) -> None:
    """Add the time of earlier starts, up to the last log line, to the clock."""
    if jax.process_index() == 0:
        last = read_last(workdir / workdir_lib.METRICS, "wall_seconds")
        # Logged steps after the checkpoint are repeated, so their time is lost. Without
        # such steps, the time since the checkpoint was spent on saving it.
        again = last is not None and last["step"] > step
        spent = 0.0 if last is None else last["wall_seconds"]
        clock.go_on(progress.seconds, spent, "lost" if again else "checkpoint")


def _restore_or_create(
    trainer: Trainer, saved: Checkpoints
) -> tuple[TrainState, Progress, dict[str, Any] | None, str | None]:
    """Restore the newest checkpoint, or create the initial state.

    Returns:
      The state, the progress, the JSON of the restored checkpoint (or None), and a log
      text on pretrained weights (or None).
    """
    restored = saved.restore_newest(as_dict(trainer.abstract_state))
    if restored is None:
        state, begun = trainer.begin()
        return state, Progress(), None, begun
    fields, info = restored
    progress = Progress(**info["progress"])
    reconsider(progress, trainer.config.train.early_stop_patience)
    return TrainState(**fields), progress, info, None


def _finish(run: RunState) -> dict[str, Any]:
    """Evaluate on the test split and write the summary, if the run is complete.

    Raises:
      Interrupted: A signal stopped the run or the evaluation.
    """
    signals, saved = run.signals, run.step > 0
    if not run.complete and not signals.requested():
        reason = run.end_reason
        event = f"stopped: {'train.stop_after_steps' if reason is None else reason}"
        run.log.write("event", run.step, event=event, saved=True)
        return {"step": run.step}
    skipped_steps = run.state.skipped_steps
    found = evaluations.test(run) if run.complete else None
    if found is None:
        assert signals.signum is not None
        event = f"stopped by {signal.Signals(signals.signum).name}"
        run.log.record("event", run.step, event=event, saved=saved)
        message = f"step {run.step} is saved" if saved else "no step was finished"
        message += "; the same command resumes the run"
        raise Interrupted(signals.signum, message)
    run.clock.update(run.progress)
    summary = summarize(run, *found, skipped_steps)
    if jax.process_index() == 0:
        _write(run, summary)
    run.log.finish(summary)
    return summary


def _write(run: RunState, summary: dict[str, Any]) -> None:
    path = run.workdir / workdir_lib.SUMMARY
    try:
        workdir_lib.write_digested(path, run.saved.run.stamp(summary))
    except OSError as error:
        raise CheckpointError(
            f"could not write {path} ({error.strerror}), but the model is saved: run "
            "the same command again"
        ) from error
