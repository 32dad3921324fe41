"""The parts of a run, each used alone, and callbacks of one's own."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtrain
from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import (
    AugmentConfig,
    CheckpointConfig,
    Config,
    ConvNetConfig,
    DataConfig,
    LoggingConfig,
    ProdigyConfig,
    SGDConfig,
    TrainConfig,
    replace,
)
from jaxtrain.errors import UserError
from jaxtrain.trainer.callback import Callback, Evaluation
from tests.helpers.runs import read_lines, read_summary

STEPS = 8


@pytest.fixture(scope="module")
def config() -> Config:
    augment = AugmentConfig(horizontal_flip=True)
    return Config(
        data=DataConfig(source="digits", batch_size=64, augment=augment),
        model=ConvNetConfig(name="convnet", width=0.125, dropout=0.1),
        optimizer=SGDConfig(learning_rate=0.1, momentum=0.9),
        train=TrainConfig(steps=STEPS, eval_every_steps=4, ema_decay=0.5),
        checkpoint=CheckpointConfig(every_steps=STEPS),
        logging=LoggingConfig(every_steps=1, tensorboard=False, report=False),
    )


@pytest.fixture(scope="module")
def trainer(config: Config) -> Any:
    return jaxtrain.Trainer(config)


@pytest.mark.slow
def test_a_loop_of_ten_lines_is_a_run(trainer: Any, config: Config, tmp_path: Path):
    jaxtrain.train(config, tmp_path / "run")
    state, losses = trainer.init(), []
    for batch in trainer.batches(start=0, stop=STEPS):
        state, metrics = trainer.step(state, batch)
        losses += metrics["loss"].tolist()
    validation = trainer.evaluate(state, "validation")

    lines = read_lines(tmp_path / "run", "train")
    assert losses == [line["loss"] for line in lines]
    last = read_summary(tmp_path / "run")["last"]
    assert last["step"] == STEPS
    assert {name: validation[name] for name in last["validation"]} == last["validation"]


@pytest.mark.slow
def test_batches_begin_at_any_step(trainer: Any):
    later = [batch.arrays["index"] for batch in trainer.batches(3, 5)]
    every = [batch.arrays["index"] for batch in trainer.batches()]
    assert len(every) == STEPS
    assert jax.tree.all(jax.tree.map(np.array_equal, later, every[3:5]))
    with pytest.raises(UserError, match=f"stop = 9: expected at most {STEPS}"):
        next(trainer.batches(stop=STEPS + 1))


@pytest.mark.slow
def test_a_loop_of_ones_own_gets_images_as_the_model_sees_them(trainer: Any):
    """Normalised by the statistics of the split, mirrored or not; in the order told."""
    (batch,) = trainer.batches(0, 1)
    prepared = trainer.prepare(batch)
    index = np.asarray(batch.arrays["index"][0])
    source, data = trainer.dataset("train").source, trainer.data
    stored = source.read(index)
    images = (stored["image"] / 255 - data.mean) / data.std
    found = np.asarray(prepared["image"][0])
    np.testing.assert_array_equal(prepared["target"][0], stored["target"])
    same = [np.abs(found - x).max((1, 2, 3)) for x in (images, images[:, :, ::-1])]
    # Float32 of numbers of about 1; another image differs by 0.1 and more.
    assert np.min(same, axis=0).max() < 1e-5
    assert min(np.argmin(same, axis=0).mean(), 1 - np.argmin(same, axis=0).mean()) > 0.2


@pytest.mark.slow
def test_a_step_takes_ones_own_batches(trainer: Any):
    (batch,) = trainer.batches(0, 1)
    expected = trainer.step(trainer.init(), batch)[1]
    index = np.asarray(batch.arrays["index"][0])
    own = {**trainer.dataset("train").source.read(index), "index": index}
    found = trainer.step(trainer.init(), trainer.put(own))[1]
    # The images are gathered by another program, which may round otherwise.
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    with pytest.raises(UserError, match="has no array 'target'"):
        trainer.put({"image": own["image"]})


@pytest.mark.slow
def test_an_evaluation_takes_ones_own_weights(trainer: Any):
    state = trainer.init()
    nothing = dataclasses.replace(
        state,
        params=jax.tree.map(jnp.zeros_like, state.params),
        extras=jax.tree.map(jnp.zeros_like, state.extras),
    )
    found = trainer.evaluate(nothing, "test")
    assert found["loss"] == pytest.approx(np.log(10), rel=1e-6)
    assert found["num_examples"] == len(trainer.dataset("test").source)
    with pytest.raises(UserError, match="split = 'dev': expected validation or test"):
        trainer.evaluate(state, "dev")


class Watch(Callback):
    """Remembers the moments of a run, and has memory in its checkpoints."""

    def __init__(self, **asks: Any):
        self.asks, self.seen = asks, list[str]()

    def on_start(self, run: Any) -> None:
        self.seen.append(f"start at {run.step}")
        memory = run.progress.callbacks.setdefault("watch", {"starts": 0})
        memory["starts"] += 1

    def on_step_end(self, run: Any, metrics: Any) -> None:
        if run.step == self.asks.get("save"):
            run.request_save()

    def on_metrics(self, run: Any, call: Any) -> None:
        assert "closed" not in self.seen
        self.seen.append(f"step {call.stop}")

    def on_stop(self, run: Any) -> None:
        self.seen.append("stop")

    def close(self) -> None:
        self.seen.append("closed")

    def on_eval_start(self, run: Any, split: str) -> None:
        self.seen.append(f"{split} begins")

    def on_eval(self, run: Any, evaluation: Evaluation) -> None:
        self.seen.append(f"{evaluation.split} at {evaluation.step}")
        if evaluation.step == self.asks.get("stop"):
            run.request_stop("seen enough")
        if "factor" in self.asks:
            run.set_rate_factor(self.asks["factor"])

    def on_end(self, run: Any, summary: dict[str, Any]) -> None:
        self.seen.append(
            f"end, after {run.progress.callbacks['watch']['starts']} starts"
        )


@pytest.mark.slow
def test_a_callback_watches_and_asks(config: Config, tmp_path: Path):
    workdir, first, second = tmp_path / "run", Watch(save=3, stop=4), Watch()
    assert jaxtrain.train(config, workdir, callbacks=[first]) == {"step": 4}
    assert committed_steps(workdir / "checkpoints") == [3, 4]
    steps = [f"step {step}" for step in range(1, 5)]
    validation = ["validation begins", "validation at 4"]
    assert first.seen == ["start at 0", *steps, *validation, "stop", "closed"]
    events = [line["event"] for line in read_lines(workdir, "event")]
    assert events[-1] == "stopped: seen enough"

    jaxtrain.train(config, workdir, callbacks=[second])
    best = read_summary(workdir)["model"]["step"]
    steps = [f"step {step}" for step in range(5, 9)]
    validation = ["validation begins", "validation at 8", "stop"]
    ended = ["test begins", f"test at {best}", "end, after 2 starts", "closed"]
    assert second.seen == ["start at 4", *steps, *validation, *ended]


@pytest.mark.slow
def test_a_callback_sets_the_rate_where_the_schedule_has_a_factor(
    config: Config, tmp_path: Path
):
    plateau = replace(config, "optimizer.schedule", "plateau")
    stopped = replace(plateau, "train.stop_after_steps", 6)
    jaxtrain.train(stopped, tmp_path / "run", callbacks=[Watch(factor=0.25)])
    jaxtrain.train(plateau, tmp_path / "run")  # It goes on with the factor.
    lines = read_lines(tmp_path / "run", "train")
    rates = [line["learning_rate"] for line in lines]
    np.testing.assert_allclose(rates, [0.1] * 4 + [0.025] * 4, rtol=1e-6)
    with pytest.raises(UserError, match=r"set sets_rate = True"):
        jaxtrain.train(config, tmp_path / "other", callbacks=[Watch(factor=0.25)])


class Slow(Watch):
    """Sets the factor of any schedule."""

    sets_rate = True


@pytest.mark.slow
def test_a_callback_sets_the_rate_of_any_schedule(config: Config, tmp_path: Path):
    """The factor is part of the saved state: the run goes on with it."""
    jaxtrain.train(config, tmp_path / "plain")
    stopped = replace(config, "train.stop_after_steps", 6)
    jaxtrain.train(stopped, tmp_path / "run", callbacks=[Slow(factor=0.25)])
    with pytest.raises(UserError, match=r"unknown to the model: extras/plateau/factor"):
        jaxtrain.train(config, tmp_path / "run")
    jaxtrain.train(config, tmp_path / "run", callbacks=[Slow()])
    plain, slowed = (
        np.array([x["learning_rate"] for x in read_lines(tmp_path / name, "train")])
        for name in ("plain", "run")
    )
    np.testing.assert_allclose(slowed, plain * ([1] * 4 + [0.25] * 4), rtol=1e-6)


def test_optimizers_that_go_by_the_rate_refuse_a_factor(config: Config, tmp_path: Path):
    estimates = replace(config, "optimizer", ProdigyConfig(learning_rate=1.0))
    with pytest.raises(UserError, match=r"prodigy.* a callback that scales"):
        jaxtrain.train(estimates, tmp_path / "run", callbacks=[Slow(factor=0.25)])
    assert not (tmp_path / "run").exists()
