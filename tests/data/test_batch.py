"""What the specification of a batch says is what the loader gives."""

from typing import Any

import jax

from jaxtrain.config import AugmentConfig, DataConfig, ParallelConfig
from jaxtrain.data import loader, sources
from jaxtrain.data.batch_specs import eval_spec, train_spec
from jaxtrain.data.datasets import make_datasets, should_cache
from jaxtrain.parallel.mesh import make_mesh
from tests.helpers.rows import each_row

WAYS: dict[str, dict[str, Any]] = {
    "cached": {},
    "streamed": {"cache": "stream"},
    "repeated": {"repeats": 2},
    "balanced": {"sampling": "balanced"},
    "alternating": {"augment": AugmentConfig(alternating_flip=True)},
    "resized by the step": {
        "image_size": 8,
        "augment": AugmentConfig(random_resized_crop=True),
    },
}


def shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


@each_row("way", WAYS)
def test_batches_are_what_the_specification_says(way: str):
    fields = {"source": "synthetic:12x12x1/4/96", "batch_size": 12, **WAYS[way]}
    config, mesh = DataConfig(**fields), make_mesh(ParallelConfig())
    splits = sources.load(config, 0)
    on_device = should_cache(config, splits)
    assert on_device == (way != "streamed")
    train, _, test = make_datasets(splits, mesh, on_device, 0.0)
    order = loader.make_order(config, train.source, 0)
    batch = next(loader.train_batches(config, train, mesh, order, 0, 1))
    spec = train_spec(config, splits.train)
    assert shapes(batch) == shapes(spec.batch(12, on_device=on_device))
    batch = next(loader.eval_batches(config, test, mesh, 5))
    spec = eval_spec(splits.test)
    assert shapes(batch) == shapes(spec.batch(5, on_device=on_device))
    if on_device:
        num = sum(map(len, splits.named().values()))
        assert shapes(train.on_device) == shapes(spec.stored(num))
