"""Best checkpoint: the checkpoint with the best evaluation so far."""

from jaxtrain.trainer.callback import Callback, Evaluation
from jaxtrain.trainer.run_state import RunState


class BestCheckpoint(Callback):
    """Callback that records the best evaluation, and requests a checkpoint after it.

    Of equally good evaluations, the latest counts as the best.
    """

    def on_eval(self, run: RunState, evaluation: Evaluation) -> None:
        trainer, progress = run.trainer, run.progress
        goal, timetable = trainer.best, trainer.timetable
        if evaluation.split == "test" or evaluation.step < timetable.ranked_from:
            return
        value, best = evaluation.metrics[goal.metric], progress.best
        known = best is not None and best["metric"] == goal.metric
        old = best["value"] if best and known else None
        if (old is not None and value == old) or goal.improves(value, old):
            step, epoch = evaluation.step, timetable.epoch(evaluation.step)
            found = {"step": step, "epoch": epoch, "metric": goal.metric}
            progress.best = {**found, "value": value}
            if trainer.config.checkpoint.keep_best > 0:
                run.request_save()
