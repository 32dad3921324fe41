"""One pass over examples serves any number of reducers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import DataConfig, ParallelConfig
from jaxtrain.data import loader, sources
from jaxtrain.data.datasets import Dataset, make_datasets
from jaxtrain.evaluation.evaluate import ModelView, compiler, evaluate
from jaxtrain.evaluation.reducers import (
    KeepExamples,
    MeanOfBatches,
    OnDevices,
    TaskMetrics,
)
from jaxtrain.evaluation.resampling import Intervals
from jaxtrain.parallel import data_sharding
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.tasks.classification import Classification

# 360 = 3 * 104 + 48: the last batch is padded.
DATA = DataConfig(source="digits", batch_size=64, eval_batch_size=104)
NUM, CLASSES, PIXELS = 360, 10, 64
KERNEL = np.random.default_rng(0).normal(size=(PIXELS, CLASSES)).astype(np.float32)
BIAS = np.zeros(CLASSES, np.float32)


def apply(weights: Any, data: Any, batches: Any) -> tuple[Any, Any]:
    kernel, bias = weights
    batch = jax.tree.map(lambda x: x[0], batches)
    if data:
        batch = {**batch, **jax.tree.map(lambda x: x[batch["index"]], data)}
    images = batch["image"].reshape(-1, PIXELS).astype(jnp.float32) / 255
    return images @ kernel + bias, batch


@pytest.fixture(scope="module")
def view() -> ModelView:
    mesh = make_mesh(ParallelConfig())
    weights = jax.device_put((KERNEL, BIAS), data_sharding.replicated(mesh))
    return ModelView(weights=weights, mesh=mesh, program=compiler(apply, mesh, "test"))


@pytest.fixture(scope="module", params=[True, False], ids=["on devices", "streamed"])
def datasets(request: pytest.FixtureRequest, view: ModelView) -> Any:
    splits = sources.load(DATA, seed=0)
    return make_datasets(splits, view.mesh, request.param, 0.0)


@pytest.fixture
def dataset(datasets: Any) -> Dataset:
    """The test split, which lies behind the others on the devices."""
    return datasets[2]


@pytest.fixture
def train_set(datasets: Any) -> Dataset:
    return datasets[0]


def whole(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits and the labels of all examples, by NumPy."""
    num = len(dataset.source)
    read = dataset.source.read(np.arange(num))
    images = read["image"].reshape(num, -1).astype(np.float32) / 255
    return images @ KERNEL + BIAS, read["target"]


def keep_logits() -> KeepExamples:
    return KeepExamples(lambda outputs, batch: {"logits": outputs})


def test_one_pass_of_three_reducers_is_three_passes(view: ModelView, dataset: Dataset):
    task = Classification((8, 8, 1), {"num_classes": CLASSES})
    reducers = [TaskMetrics(task), keep_logits(), Intervals(task)]
    together = evaluate(view, dataset, reducers, DATA)
    alone = [evaluate(view, dataset, [one], DATA) for one in reducers]
    for found, (by_itself,) in zip(together, alone, strict=True):
        jax.tree.map(np.testing.assert_array_equal, found, by_itself)

    logits, labels = whole(dataset)
    values, kept, intervals = together
    assert values["num_examples"] == NUM
    assert values["accuracy"] == np.mean(logits.argmax(-1) == labels)
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(NUM), labels]
    np.testing.assert_allclose(values["loss"], losses.mean(), rtol=1e-5)
    np.testing.assert_array_equal(kept.numbers, np.arange(NUM))
    np.testing.assert_allclose(kept.values["logits"], logits, rtol=1e-4, atol=1e-4)
    assert kept.finite.all()
    low, high = intervals["accuracy"]
    assert low < values["accuracy"] < high


def test_outputs_stay_on_the_devices_by_the_numbers_of_examples(
    view: ModelView, train_set: Dataset
):
    """The last batch is filled up with the first examples."""
    num = len(train_set.source)
    shape, everywhere = (num, CLASSES), data_sharding.replicated(view.mesh)
    abstract = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=everywhere)
    logits, _ = whole(train_set)
    batches = loader.all_batches(DATA, train_set, view.mesh, 104)
    assert num % 104
    (found,) = evaluate(
        view, train_set, [OnDevices(abstract)], DATA, batch_size=104, batches=batches
    )
    assert isinstance(found, jax.Array)
    assert found.sharding.is_equivalent_to(everywhere, 2)
    np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-4)


def test_means_over_batches_are_of_float64(view: ModelView, train_set: Dataset):
    """Sums in float32 would forget the small ones."""
    mesh = view.mesh

    def first(*arguments: Any) -> tuple[Any, Any]:
        outputs, batch = apply(*arguments)
        return {"first": jnp.float32(2**24) + outputs[0]}, batch

    one = ModelView(
        weights=view.weights, mesh=mesh, program=compiler(first, mesh, "test")
    )
    chosen = np.arange(4 * 8).reshape(4, 8)
    batches = loader.chosen_batches(DATA, train_set, mesh, chosen)
    (found,) = evaluate(
        one, train_set, [MeanOfBatches()], DATA, batch_size=8, batches=batches
    )
    logits, _ = whole(train_set)
    expected = (np.float32(2**24) + logits[::8][:4]).astype(np.float64).mean(0)
    assert found["first"].dtype == np.float64
    np.testing.assert_array_equal(found["first"], expected)
