"""The evaluations of a run: when, on which split, and what follows from them."""

from jaxtrain.data.loader import Dataset
from jaxtrain.engine.passes import evaluate
from jaxtrain.processes import peers
from jaxtrain.run.attempt import Attempt
from jaxtrain.run.tested import Tested, load_tested
from jaxtrain.tasks.base import Values


class Evaluations:
    """Evaluates; finds the best, and whether it is time to stop early."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self._config = attempt.job.setup.config
        self._timetable = attempt.job.setup.timetable

    def due(self) -> bool:
        """Whether the validation split is to be evaluated after this step."""
        step, every = self._attempt.step, self._timetable.eval_every_steps
        due = every and (step % every == 0 or step == self._timetable.total_steps)
        return bool(due) and self._attempt.progress.evaluated_step != step

    def validate(self) -> bool:
        """Evaluate on the validation split.

        Returns:
          Whether it is the best so far, and best checkpoints are kept.
        """
        attempt, step = self._attempt, self._attempt.step
        dataset = attempt.job.programs.validation_set
        assert dataset is not None
        metrics = self._pass_over(dataset, "validation")
        if metrics is None:
            return False
        attempt.log.write("eval", step, split="validation", **metrics)
        progress, setup = attempt.progress, attempt.job.setup
        improved = progress.record(
            step,
            self._timetable.epoch(step),
            metrics,
            best=setup.best,
            watched=setup.watched,
            patience=self._config.train.early_stop_patience,
        )
        if progress.stopped_early:
            event = f"early stop on {setup.watched.metric}"
            attempt.log.write("event", step, event=event)
        return improved and self._config.checkpoint.keep_best > 0

    def test(self) -> tuple[Tested, Values] | None:
        """Evaluate the best checkpoint on the test split; None if a signal came.

        Its state replaces that of the attempt.
        """
        attempt = self._attempt
        if attempt.job.signals.requested():
            return None
        tested = load_tested(attempt)
        values = self._pass_over(attempt.job.programs.test_set, "test")
        return None if values is None else (tested, values)

    def _pass_over(self, dataset: Dataset, split: str) -> Values | None:
        attempt, setup = self._attempt, self._attempt.job.setup

        def should_stop() -> bool:
            attempt.watchdog.beat()
            return attempt.job.signals.requested()

        doing = f"evaluating on the {split} split"
        with attempt.clock.paused(), attempt.log.doing(doing):
            values = evaluate(
                attempt.job.programs.eval,
                attempt.job.programs.zero_sums,
                attempt.state,
                dataset,
                self._config.data,
                setup.mesh,
                setup.task,
                should_stop,
            )
            attempt.tell_unreadable()
            peers.gather(None)
        # What the others reported before has come.
        attempt.tell_unreadable()
        return values
