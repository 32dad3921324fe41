"""Early stopping after evaluations without improvement."""

from jaxtrain.trainer.callback import Callback, Evaluation
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.run_state import RunState

NAME = "early_stopping"


class EarlyStopping(Callback):
    """Stop a run after `train.early_stop_patience` evaluations without improvement."""

    def on_eval(self, run: RunState, evaluation: Evaluation) -> None:
        trainer, progress = run.trainer, run.progress
        patience, goal = trainer.config.train.early_stop_patience, trainer.watched
        ranked = evaluation.step >= trainer.timetable.ranked_from
        if evaluation.split == "test" or not ranked or patience is None:
            return
        memory = progress.callbacks.get(NAME, {})
        if memory.get("metric", goal.metric) != goal.metric:
            # The resumed run monitors another metric: restart the count at 0.
            memory, progress.evals_without_improvement = {}, 0
        value, best = evaluation.metrics[goal.metric], memory.get("best")
        if goal.improves(value, best):
            best, progress.evals_without_improvement = value, 0
        else:
            progress.evals_without_improvement += 1
        progress.callbacks[NAME] = {"metric": goal.metric, "best": best}
        progress.stopped_early = progress.evals_without_improvement >= patience
        if progress.stopped_early:
            event = f"early stop on {goal.metric}"
            run.log.write("event", evaluation.step, event=event)


def reconsider(progress: Progress, patience: int | None) -> None:
    """Reset `stopped_early` of a resumed run if its patience was raised or removed."""
    if patience is None or progress.evals_without_improvement < patience:
        progress.stopped_early = False
