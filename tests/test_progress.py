"""The best evaluation and early stopping, on the host."""

import pytest

from jaxtrain.config import CheckpointConfig, Config, Metric, TrainConfig
from jaxtrain.progress import Progress


def run(metric: Metric, values: list[float], patience: int | None) -> Progress:
    """Record evaluations until the run would stop."""
    config = Config(
        train=TrainConfig(
            steps=1, early_stop_patience=patience, early_stop_metric=metric
        ),
        checkpoint=CheckpointConfig(best_metric=metric),
    )
    progress = Progress()
    for i, value in enumerate(values, start=1):
        progress.record(i, i / 2, {metric: value}, config)
        if progress.stopped_early:
            break
    return progress


@pytest.mark.parametrize(
    ("metric", "values", "stop", "best"),
    [
        ("accuracy", [0.1, 0.3, 0.2, 0.3, 0.9], 4, 2),
        ("accuracy", [0.1, 0.3, 0.2, 0.4, 0.3, 0.35], 6, 4),
        ("loss", [2.0, 1.0, 1.5, 0.5, 0.7, 0.6], 6, 4),
        ("loss", [1.0, float("nan"), float("nan"), 0.1], 3, 1),
    ],
)
def test_stops_after_patience_evaluations_without_improvement(
    metric: Metric, values: list[float], stop: int, best: int
):
    progress = run(metric, values, patience=2)
    assert (progress.stopped_early, progress.evaluated_step) == (True, stop)
    assert progress.best is not None
    assert (progress.best["step"], progress.best["value"]) == (best, values[best - 1])


def test_without_patience_never_stops():
    progress = run("loss", [1.0] * 50, patience=None)
    assert not progress.stopped_early and progress.evaluated_step == 50
