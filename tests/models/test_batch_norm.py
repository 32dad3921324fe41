"""Batch norm over one value per channel is refused before the first step."""

from functools import partial

import jax
import pytest

from jaxtrain import own
from jaxtrain.config import ResNetConfig
from jaxtrain.errors import UserError
from jaxtrain.training.forward import apply_model, predict
from jaxtrain.training.frozen import Frozen
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe

RUN = recipe(
    data='DataConfig(source="synthetic:8x8x3/2/32", batch_size=8)',
    model='ResNetConfig(name="resnet18", width=0.0625, stem="imagenet")',
    train="TrainConfig(steps=1)",
    checkpoint="CheckpointConfig(every_steps=1)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)
# From the second stage on images of 8x8 pixels have become 1x1.
LAYER = "stage2_block1/shortcut_norm"
PLAIN = "tests.helpers.plain_norm:PlainNorm"
own.allow([PLAIN])


def test_a_group_needs_two_values_per_channel_in_training_alone():
    made = make_blueprint(
        ResNetConfig(name="resnet18", width=0.0625, stem="imagenet"),
        (8, 8, 3),
        2,
        norm_groups=4,
    )
    model = made.abstract()
    graphdef, *weights = split_model(model)
    train, key = partial(apply_model, graphdef), jax.random.key(0)
    given = *weights, made.images(4), key
    with pytest.raises(UserError, match=f"{LAYER}: .*groups of examples: 4"):
        jax.eval_shape(train, *given)
    jax.eval_shape(train, *weights, made.images(8), key)
    # Layers that are not trained compute as they are evaluated.
    every = frozenset(name for piece in model.pieces for name in piece.names)
    jax.eval_shape(partial(train, frozen=Frozen(every)), *given)


def test_a_batch_norm_of_flax_is_refused_likewise():
    made = make_blueprint(PLAIN, (1, 1, 3), 2)
    graphdef, *weights = split_model(made.abstract())
    train, key = partial(apply_model, graphdef), jax.random.key(0)
    with pytest.raises(UserError, match=r"norm: .* \(input 1x1x1x8, .*: 1\)"):
        jax.eval_shape(train, *weights, made.images(1), key)
    jax.eval_shape(train, *weights, made.images(2), key)
    jax.eval_shape(partial(predict, graphdef), *weights, made.images(1))


@pytest.mark.slow
def test_a_run_with_one_value_per_channel_is_refused(cli: Cli):
    """Its outputs would be the bias, and its loss that of a guess."""
    write_recipe(cli.directory / "recipe.py", RUN)
    words = "--parallel.batch-norm 1 --train.accumulate-steps 2 --train.remat block"
    result = cli(*f"--config recipe.py --workdir run {words}".split())
    assert result.code == 2, result.stderr
    told = f"error: {LAYER}: batch norm over one value per channel (input 4x1x1x8, "
    assert told in result.stderr and "Traceback" not in result.stderr
    for cure in ("data.image_size", "model.stem", "data.batch_size", "accumulate"):
        assert cure in result.stderr
    assert not (cli.directory / "run" / "summary.json").exists()
