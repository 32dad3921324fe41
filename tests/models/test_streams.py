"""Layers that keep streams of random keys: trained, saved and resumed like others."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain import own
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint, initial_rngs
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines

MODEL, KEPT = "tests.helpers.own_dropout:OwnDropout", f"{__name__}:KeptKey"
own.allow([MODEL, KEPT])
RUN = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    model=f'CustomModelConfig(name="{MODEL}")',
    train="TrainConfig(steps=6, ema_decay=0.9, accumulate_steps=2)",
    checkpoint="CheckpointConfig(every_steps=3)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)


class KeptKey(Model):
    def __init__(self, image_shape: Any, num_outputs: int, *, layers: Any):
        conv: Any = layers.conv(1, num_outputs, 3)
        conv.key = nnx.Variable(jax.random.key(0))
        self.add_piece(lambda conv, x, rngs: conv(x).mean((1, 2)), conv=conv)


def blueprint(name: str) -> Blueprint:
    return make_blueprint(name, (8, 8, 1), 4)


def test_streams_have_no_state_and_draw_the_keys_of_their_piece():
    model: Any = blueprint(MODEL).build(initial_rngs(jax.random.key(0)))
    assert not jax.tree.leaves(split_model(model)[2])
    model.train()
    images = jnp.ones((2, 8, 8, 1))

    @jax.jit
    def both(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        rngs = nnx.Rngs(dropout=jax.random.fold_in(key, 0))
        x = nnx.Dropout(0.5)(jnp.tanh(model.net.conv(images)), rngs=rngs)
        expected = x + 0.1 * rngs.dropout.normal(x.shape)
        return model(images, key=key, part=slice(1)), expected

    found, expected = both(jax.random.key(1))
    np.testing.assert_array_equal(found, expected)
    assert (found != both(jax.random.key(2))[0]).all()
    model.eval()
    assert model(images).shape == (2, 4)
    model.net.deterministic = False
    with pytest.raises(UserError, match="RNG stream 'noise' in evaluation"):
        model(images)


def test_a_layer_that_keeps_a_key_is_refused():
    with pytest.raises(UserError, match="conv/key is a PRNG key, which checkpoints"):
        blueprint(KEPT).abstract()


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit(cli: Cli):
    write_recipe(cli.directory / "recipe.py", RUN)
    for words in (
        "--workdir whole",
        "--workdir run --train.stop-after-steps 3",
        "--workdir run",
        "--workdir recomputed --train.remat block",
    ):
        cli.done(*f"--config recipe.py {words}".split())
    whole, run, other = (
        [line["loss"] for line in read_lines(cli.directory / name, "train")]
        for name in ("whole", "run", "recomputed")
    )
    assert whole == run and len(whole) == 6
    np.testing.assert_allclose(other, whole, rtol=1e-5)
