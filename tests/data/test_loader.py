"""The order of the data, and that caching, streaming and workers change nothing."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain import keys
from jaxtrain.config import (
    Config,
    DataConfig,
    ParallelConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.data import loader, sources
from jaxtrain.data.datasets import make_datasets, should_cache
from jaxtrain.data.fit import Fit
from jaxtrain.data.order import DataOrder
from jaxtrain.data.random_windows import WINDOW
from jaxtrain.evaluation.evaluate import ModelView, evaluate
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.trainer.programs import make_programs
from jaxtrain.trainer.run_data import load_data
from jaxtrain.trainer.setup import build_setup

DATA = DataConfig(source="digits", batch_size=64)


def splits() -> sources.Splits:
    return sources.load(DATA, seed=0)


def read_batches(config: DataConfig, cache: bool, start: int = 0, stop: int = 4):
    mesh = make_mesh(ParallelConfig())
    dataset = make_datasets(splits(), mesh, cache, 0.0)[0]
    order = loader.make_order(config, dataset.source, 3)
    batches = loader.train_batches(config, dataset, mesh, order, start, stop)
    return dataset, list(batches)


def test_streamed_batches_hold_the_examples_that_the_order_names():
    dataset, batches = read_batches(DATA, cache=False)
    for step, batch in enumerate(batches):
        expected = DataOrder(3, len(dataset.source), 64).indices(step)
        np.testing.assert_array_equal(batch["index"], expected)
        stored = dataset.source.read(expected)
        np.testing.assert_array_equal(batch["image"], stored["image"])
        np.testing.assert_array_equal(batch["target"], stored["target"])


@pytest.mark.parametrize("batch_size", [64, 360])
def test_evaluation_counts_every_example_once(batch_size: int):
    """360 = 5 * 64 + 40: the last batch is short, and padded."""
    config = Config(
        data=DataConfig(source="digits", batch_size=64, eval_batch_size=batch_size),
        optimizer=SGDConfig(learning_rate=0.1),
        train=TrainConfig(steps=1),
    )
    setup = build_setup(config)
    data = load_data(setup)
    programs = make_programs(setup, data)
    state = programs.begin(programs.weights(keys.root_key(0)))
    view = ModelView(
        weights=(state.eval_params, state.eval_model_state),
        mesh=setup.mesh,
        program=lambda reducers: programs.eval,
    )
    reducers = [TaskMetrics(setup.task)]
    (result,) = evaluate(view, data.test_set, reducers, config.data)
    # One batch of everything, by hand.
    everything = data.test_set.source.read(np.arange(360))
    logits = _logits(setup, data, state, everything["image"])
    accuracy = (logits.argmax(-1) == everything["target"]).mean()
    assert result["num_examples"] == 360
    assert result["accuracy"] == accuracy
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -log_probabilities[np.arange(360), everything["target"]].mean()
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-5)


@pytest.mark.parametrize("num", [0, 2])
def test_a_stop_is_heeded_before_a_batch_is_sent(num: int):
    """Whatever a batch takes, and the compilation of the first one."""
    config = Config(
        data=DataConfig(source="digits", batch_size=64),
        optimizer=SGDConfig(learning_rate=0.1),
        train=TrainConfig(steps=1),
    )
    setup = build_setup(config)
    sent: list[Any] = []
    dataset = make_datasets(setup.splits, setup.mesh, False, 0.0)[2]

    def program(weights: Any, *batch: Any) -> Any:
        sent.append(batch)
        return (({"loss": jax.numpy.zeros(())}, {}),), {}

    view = ModelView(weights=({}, {}), mesh=setup.mesh, program=lambda _: program)
    found = evaluate(
        view,
        dataset,
        [TaskMetrics(setup.task)],
        config.data,
        should_stop=lambda: len(sent) == num,
    )
    assert found == ()
    assert len(sent) == num


def _logits(setup, data, state, images: np.ndarray) -> np.ndarray:
    from flax import nnx

    model = nnx.merge(setup.graphdef, state.params, state.model_state)
    model.eval()
    mean, std = np.float32(data.mean), np.float32(data.std)
    return np.asarray(jax.jit(model)((images / np.float32(255) - mean) / std))


def test_what_is_cached():
    def cached(**data) -> bool:
        config = DataConfig(source="digits", **data)
        return should_cache(config, splits())

    assert cached() and cached(cache="device")
    assert not cached(cache="stream")
    assert not cached(workers=1)
    # Windows that the host takes are other ones in each epoch.
    train = splits().train
    cut = dataclasses.replace(train, fit=Fit(window=WINDOW))
    assert not should_cache(DATA, dataclasses.replace(splits(), train=cut))
