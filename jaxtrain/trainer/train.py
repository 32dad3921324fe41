"""One training run, top to bottom: config -> state -> loop -> summary."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from jaxtrain import starting
from jaxtrain.checkpoints.retention import check_space
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import Config, own_parts
from jaxtrain.json_files.run_id import RunId
from jaxtrain.processes import peers
from jaxtrain.processes.hooks import Hooks
from jaxtrain.processes.signals import StopSignals
from jaxtrain.processes.watchdog import Watchdog
from jaxtrain.records import workdir as workdir_lib
from jaxtrain.records import writers
from jaxtrain.records.held_folder import locked
from jaxtrain.records.metrics_file import read_last
from jaxtrain.records.run_log import RunLog, show_table
from jaxtrain.records.writer import LoggedRun
from jaxtrain.trainer import CALLBACKS, agreement
from jaxtrain.trainer.attempt import Attempt, Job
from jaxtrain.trainer.clock import Clock
from jaxtrain.trainer.extended import describe_jump
from jaxtrain.trainer.features import with_features
from jaxtrain.trainer.loop import Run
from jaxtrain.trainer.next_commands import NEXT_COMMANDS, show_next
from jaxtrain.trainer.plateau import with_factor
from jaxtrain.trainer.pretrained import first_weights, plan_start
from jaxtrain.trainer.programs import make_programs
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.rewind import go_back
from jaxtrain.trainer.settle import check_kept, describe_settled
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.trainer.summary import describe_data, describe_model, versions
from jaxtrain.trainer.tables import describe, describe_result
from jaxtrain.training.state import TrainState, as_dict
from jaxtrain.weights.description import MODEL


def train(
    config: Config,
    workdir: Path,
    *,
    fresh: bool = False,
    resume_step: int | None = None,
    hooks: Hooks | None = None,
    signals: StopSignals | None = None,
    began: float | None = None,
) -> dict[str, Any]:
    """Train as `config` says, or go on where `workdir` stopped; return the summary.

    Other arguments and errors are those of `jaxtrain.train`.

    Args:
      hooks: Called around calls and evaluations, such as a profiler.
      signals: Signals that stop the run in order; None heeds none.
      began: Time of `time.perf_counter` at which the run began. Defaults to now.

    Raises:
      StartAgainError: Data workers were lost; the last checkpoint is there.
      Interrupted: A signal came; the state is saved.
    """
    clock = Clock(began)
    options = {"--fresh": fresh, "--resume-step": resume_step}
    agreement.check_started_alike(config, options)
    writers.check(config.logging)
    for table in (CALLBACKS, NEXT_COMMANDS):  # Used when the run has ended.
        table.check()
    workdir = workdir_lib.follow(workdir)
    if fresh:
        check_kept(config, workdir)
    starting.begin(f"opening the data: {config.data.source}")
    setup = build_setup(config, workdir=None if fresh else workdir)
    start = plan_start(setup)
    with locked(workdir):
        finished, run = _open(setup, workdir, fresh=fresh, resume_step=resume_step)
        if finished is not None:
            return finished
        rows = describe_settled(setup.recipe, setup.config, setup.trained)
        if start is not None:
            rows |= start.rows
        if setup.method_inputs is not None:
            rows |= setup.method_inputs.describe()
        show_table("jaxtrain", {**describe(setup, workdir), **rows})
        folder = workdir / workdir_lib.CHECKPOINTS
        with contextlib.closing(
            Checkpoints(folder, config.checkpoint, setup.best, run=run)
        ) as saved:
            saved.check_run()
            rewound = None
            if resume_step is not None:
                rewound = go_back(workdir, saved, resume_step)
            starting.begin("preparing the data, the model and its state")
            programs = make_programs(setup)
            if jax.process_index() == 0:
                about = describe_model(setup, programs)
                workdir_lib.write_digested(workdir / MODEL, run.stamp(about.to_dict()))
            job = Job(
                setup=setup,
                start=start,
                programs=programs,
                workdir=workdir,
                versions=versions(),
                own_parts=own_parts(setup.config),
                saved=saved,
                signals=signals or StopSignals(),
                hooks=hooks or Hooks(),
                clock=clock,
            )
            summary = _carry_out(job, rewound)
        if "eval" in summary:  # Not if it stopped early, as asked.
            show_table("result", describe_result(setup, summary, workdir))
            for callback in CALLBACKS.values():
                callback(job)
            show_next(workdir, setup.config, setup.task)
        return summary


def _open(
    setup: Setup, workdir: Path, *, fresh: bool, resume_step: int | None
) -> tuple[dict[str, Any] | None, RunId]:
    """Check the folder and its disk.

    Process 0, which holds the folder, does so; the others wait for its word.

    Returns:
      The summary of a run that is finished, else None; and the id of the run.
    """
    summary, run, data = None, None, describe_data(setup)
    agreement.check_same_data(setup.config, data)
    if jax.process_index() == 0:
        config, total_steps = setup.config, setup.timetable.total_steps
        run = workdir_lib.open_workdir(
            workdir, config, data, fresh=fresh, resume_step=resume_step
        )
        if resume_step is None:
            summary = workdir_lib.read_summary(
                workdir, total_steps, config.train.early_stop_patience
            )
        if summary is None:
            folder = workdir / workdir_lib.CHECKPOINTS
            check_space(folder, setup.abstract_state, config.checkpoint)
        else:
            where = f"see {workdir_lib.SUMMARY} there"
            print(f"{workdir} holds a finished run: {where}")
            show_next(workdir, setup.config, setup.task)
    told = (summary, None if run is None else run.value)
    summary, run_id = peers.gather(told)[0]
    run = RunId(run_id, str(workdir / workdir_lib.CONFIG))
    agreement.check_same_workdir(workdir, run)
    return summary, run


def _carry_out(job: Job, rewound: dict[str, Any] | None) -> dict[str, Any]:
    """Run to the end; return the summary.

    Args:
      rewound: Event of going back to an earlier checkpoint, if the run does.
    """
    setup = job.setup
    state, progress, saved, begun = restore_or_create(job)
    state = with_factor(state, progress.plateau)
    job = replace(job, programs=with_features(setup, job.programs, state))
    step = int(state.step)
    news: list[str] = []
    if saved is not None:
        taken = step - state.skipped_steps
        news += describe_jump(setup, saved["config"], step, taken)
        news += [
            f"{file} has changed since step {step} was saved"
            for file, digest in saved["own_parts"].items()
            if job.own_parts.get(file, digest) != digest
        ]
    logged = LoggedRun(
        workdir=job.workdir,
        config=setup.config,
        step=step,
        total_steps=setup.timetable.total_steps,
        epoch=setup.timetable.epoch,
        task=setup.task,
        evaluated_after=setup.evaluated_after,
    )
    _count_earlier(job, step, progress)
    starting.end()
    log, programs = RunLog(logged, job.clock.wall_seconds), job.programs
    watchdog = Watchdog(setup.config.train.step_timeout_seconds, programs.compiling)
    with contextlib.closing(log), watchdog:
        log.show_earlier()
        if rewound is not None:
            log.write("event", step, **rewound)
        if begun is not None:
            log.write("event", step, event=begun)
        job.signals.defer = True
        attempt = Attempt(
            job=job,
            log=log,
            watchdog=watchdog,
            step=step,
            state=state,
            progress=progress,
            renewed=step,
        )
        for message in news:
            attempt.tell(message)
        job.clock.switch("other")
        run = Run(attempt)
        run.loop()
        return run.finish()


def _count_earlier(job: Job, step: int, progress: Progress) -> None:
    """Count the seconds before this attempt, and what was lost after its checkpoint.

    Those of processes that have ended are known up to the last line of metrics.
    """
    if jax.process_index() == 0:
        last = read_last(job.workdir / workdir_lib.METRICS, "wall_seconds")
        # At the step of the checkpoint itself, the rest was the wait for it.
        again = last is not None and last["step"] > step
        spent = 0.0 if last is None else last["wall_seconds"]
        job.clock.go_on(progress.seconds, spent, "lost" if again else "checkpoint")


def restore_or_create(
    job: Job,
) -> tuple[TrainState, Progress, dict[str, Any] | None, str | None]:
    """Return the newest saved state, or a new one, sharded from the start.

    Returns:
      The state, the progress, all JSON that they were saved with, if they were, and
      what is to be told of how it begins.
    """
    restored = job.saved.restore_newest(as_dict(job.setup.abstract_state))
    if restored is not None:
        fields, info = restored
        progress = Progress(**info["progress"])
        progress.reconsider(job.setup.config.train.early_stop_patience)
        return TrainState(**fields), progress, info, None
    weights, begun = first_weights(job.setup, job.programs, job.start)
    return job.programs.begin(weights), Progress(), None, begun
