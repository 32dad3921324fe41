"""Contents of summary.json."""

from typing import Any

import jax

from jaxtrain.trainer.callback import Evaluation
from jaxtrain.trainer.records import describe_data
from jaxtrain.trainer.run_state import RunState
from jaxtrain.trainer.telemetry import flop_utilization
from jaxtrain.training.state import num_params


def summarize(
    run: RunState,
    test: Evaluation,
    validation: dict[str, Any] | None,
    skipped_steps: int,
) -> dict[str, Any]:
    """Create the contents of summary.json.

    Args:
      run: State of a complete run.
      test: Evaluation on the test split.
      validation: Validation metrics of the tested weights, or None.
      skipped_steps: Number of skipped steps of the run.
    """
    trainer, step, progress = run.trainer, run.step, run.progress
    epoch, told = trainer.timetable.epoch, {}
    for transform in trainer.create.transforms:
        told |= transform.summarize(run.state)

    def weights(step: int, validation: dict[str, Any] | None) -> dict[str, Any]:
        return {"step": step, "epoch": epoch(step), "validation": validation}

    evaluated = progress.evaluated_step == step
    speed = step * trainer.timetable.batch_size / progress.step_seconds
    mfu = flop_utilization(trainer, step - 1, speed)
    return {
        "step": step,
        "epoch": epoch(step),
        "eval": test.metrics,
        "model": weights(test.step, validation),
        "last": weights(step, progress.eval_metrics if evaluated else None),
        "best": progress.best,
        "stopped_early": progress.stopped_early,
        "evals_without_improvement": progress.evals_without_improvement,
        "skipped_steps": skipped_steps,
        "train_seconds": progress.train_seconds,
        "wall_seconds": sum(progress.seconds.values()),
        "seconds": progress.seconds,
        "goodput": progress.seconds["step"] / sum(progress.seconds.values()),
        "compile_seconds": trainer.programs.compile_seconds(),
        "examples_per_second": speed,
        **({} if mfu is None else {"mfu": mfu}),
        "num_params": num_params(trainer.abstract_state.params),
        "device_kind": jax.devices()[0].device_kind,
        "num_devices": trainer.num_devices,
        "num_processes": jax.process_count(),
        "precision": trainer.config.precision,
        "class_names": describe_data(trainer)["class_names"],
        **trainer.execution.summary(),
        **told,
        "versions": run.versions,
    }
