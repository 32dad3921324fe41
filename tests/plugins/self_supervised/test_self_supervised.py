"""SimCLR and BYOL: steps against PyTorch, runs, and what begins with their weights."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxtrain import keys, own
from jaxtrain.config import Config, SGDConfig, TrainConfig
from jaxtrain.errors import UserError
from jaxtrain.inference.load import load_model
from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import momenta
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.embedding.losses import agreement_losses
from jaxtrain.plugins.self_supervised.options import SelfSupervisedConfig
from jaxtrain.plugins.self_supervised.task import SelfSupervised, spread
from jaxtrain.tasks.build import build_task
from jaxtrain.training.averages import make_average
from jaxtrain.training.create import CreateState
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.step import make_train_step
from jaxtrain.training.transforms.core import core_transforms
from tests.helpers import views
from tests.helpers.blueprints import make_blueprint
from tests.helpers.command import float64
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.phases import make_phase
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.tiers import thinned
from tests.helpers.trial import LAYOUT, as_given

STORED = Path(__file__).parents[2] / "stored" / "torch" / "views.json"
LOSSES = ("simclr", "byol")
STEPS = 8
MODEL = "tests.plugins.self_supervised.test_self_supervised:Hidden"


class Hidden(Model):
    """The network of `tests.helpers.views`, without its projection."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        del image_shape
        self.add_piece(
            _hidden,
            stem=layers.linear(*views.DENSE["stem"]),
            stem_norm=layers.batch_norm(views.HIDDEN),
        )
        head = Head(views.HIDDEN, num_outputs, 0.0, layers=layers)
        self.add_piece(Head.__call__, head=head)


def _hidden(dense: Any, norm: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return nnx.relu(norm(dense(x.reshape(len(x), -1))))


own.allow([MODEL])


def first_params(params: Any) -> Any:
    """Return parameters with the kernels of PyTorch."""
    kernels = {name: jnp.asarray(x) for name, x in views.kernels().items()}
    params["stem"]["kernel"] = kernels["stem"]
    params["head"]["linear"]["kernel"] = kernels["head"]
    behind = params["projection"]
    behind["project"]["linear"]["kernel"] = kernels["project"]
    if "predict" in behind:
        behind["widen"]["kernel"] = kernels["widen"]
        behind["predict"]["linear"]["kernel"] = kernels["predict"]
    return params


def take_steps(loss: str) -> np.ndarray:
    """Return the losses of the steps that PyTorch has taken."""
    average = views.DECAY if loss == "byol" else None
    options = {"loss": loss, "size": views.SIZE, "projection_size": views.PROJECTION}
    optimizer = SGDConfig(learning_rate=views.RATE, momentum=views.MOMENTUM)
    train = TrainConfig(steps=views.STEPS, ema_decay=average)
    config = Config(
        task=SelfSupervisedConfig(**options), optimizer=optimizer, train=train
    )
    task = build_task(config, (*views.PIXELS, 1), {})
    blueprint = make_blueprint(
        MODEL, (*views.PIXELS, 1), task.num_outputs, "fp64", projection=task.projection
    )
    model = blueprint.abstract()
    schedule: Any = optax.constant_schedule(views.RATE)
    tx, average = make_optimizer(optimizer, schedule), make_average(optimizer, train)
    transforms = core_transforms(
        optimizer, train, average, total_steps=100, scales_loss=False
    )
    update = make_phase(
        optimizer, train, tx, schedule, momenta(model), transforms=transforms
    )
    create = CreateState(blueprint, tx, transforms)
    root = keys.root_key(0)
    params, model_state = create.weights(root)
    state = create.begin((first_params(params), model_state))
    step = jax.jit(make_train_step(task, nnx.graphdef(model), update, as_given, LAYOUT))
    found = []
    for images in views.images():
        batch = {"image": images[None], "index": views.index()[None]}
        batch["target"] = np.zeros_like(batch["index"])
        state, metrics = step(state, root, {}, batch)
        found.append(metrics["loss"][0])
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_steps_are_those_of_pytorch(loss: str):
    with float64(enable=True):
        found = take_steps(loss)
    # The schedule and the rate of the average are float32.
    np.testing.assert_allclose(found, json.loads(STORED.read_text())[loss], rtol=1e-6)


def test_agreement_is_its_formula():
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 6, 5))
    lengths = [np.linalg.norm(x, axis=1) for x in (one, other)]
    expected = 2 - 2 * (one * other).sum(1) / (lengths[0] * lengths[1])
    found = agreement_losses(jnp.asarray(one), jnp.asarray(other))
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_spread_is_nought_of_a_collapse_and_one_of_all_directions():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4096, 16))
    # Of 4096 directions the mean has a length of about 1 / 64.
    assert float(spread(jnp.asarray(values))) == pytest.approx(1, abs=1e-3)
    assert float(spread(jnp.asarray(values[:1].repeat(9, 0)))) < 1e-3


def run_text(loss: str, **changes: str) -> str:
    average = ", ema_decay=0.9" if loss == "byol" else ""
    values = {
        "task": f'SelfSupervisedConfig(loss="{loss}", size=16, projection_size=8)',
        "data": 'DataConfig(source="digits", batch_size=32, eval_batch_size=16, '
        "repeats=2, augment=AugmentConfig(crop_padding=1, brightness=0.3))",
        "model": 'ConvNetConfig(name="convnet", width=0.125)',
        "optimizer": "SGDConfig(learning_rate=0.05, momentum=0.9)",
        "train": f"TrainConfig(steps={STEPS}, eval_every_steps=4{average})",
        "checkpoint": "CheckpointConfig(every_steps=4)",
        "logging": "LoggingConfig(every_steps=1)",
    }
    return recipe(**{**values, **changes})


def train(folder: Path, words: str = "", run: str = "run", **env: Any) -> Path:
    config = ("--config", "recipe.py", "--workdir", run)
    Cli(folder).done(*config, *words.split(), **env)
    return folder / run


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of BYOL."""
    folder = tmp_path_factory.mktemp("byol")
    write_recipe(folder / "recipe.py", run_text("byol"))
    train(folder)
    return folder


@pytest.mark.slow
def test_a_run_learns_and_ranks_by_neighbours(here: Path):
    lines, summary = read_lines(here / "run", "train"), read_summary(here / "run")
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert all(0 < line["spread"] <= 1 for line in lines)
    assert summary["best"]["metric"] == "knn_accuracy"
    about = json.loads((here / "run" / "model.json").read_text())
    assert about["num_outputs"] == 16
    assert about["projection"] == {"size": 8, "predicts": True}


@pytest.mark.slow
def test_a_linear_probe_trains_the_last_layer_alone(here: Path):
    """The backbone stays, batch norms too, and the projection is left behind."""
    text = recipe(
        data='DataConfig(source="digits", batch_size=32)',
        model='ConvNetConfig(name="convnet", width=0.125, pretrained="run")',
        train='TrainConfig(steps=4, freeze=("backbone",))',
    )
    folder = here / "probe"
    folder.mkdir()
    write_recipe(folder / "recipe.py", text.replace('"run"', repr(str(here / "run"))))
    probe, begun = load_model(str(train(folder))), load_model(str(here / "run"))
    params = {n: x for n, x in probe.params.items() if n != "head"}
    for name in params:
        same = jax.tree.map(np.array_equal, params[name], begun.params[name])
        assert jax.tree.all(same), name
    for name, state in probe.model_state.items():
        same = jax.tree.map(np.array_equal, state, begun.model_state[name])
        assert jax.tree.all(same), name
    assert "projection" in begun.params and "projection" not in probe.params
    assert probe.params["head"]["linear"]["kernel"].shape[-1] == 10


@pytest.mark.slow
def test_a_run_resumes_exactly(here: Path, tmp_path: Path):
    write_recipe(tmp_path / "recipe.py", run_text("byol"))
    train(tmp_path, "--train.stop-after-steps 4", run="cut")
    train(tmp_path, run="cut")
    assert_same_run(here / "run", tmp_path / "cut", STEPS)


@pytest.mark.parametrize(
    ("loss", "preset"), thinned(2, [("byol", "fsdp"), ("simclr", "2d")])
)
def test_devices_do_not_matter(loss: str, preset: str, tmp_path: Path):
    text = run_text(loss, precision='"fp64"')
    write_recipe(tmp_path / "recipe.py", text)
    alone = train(tmp_path, run="one", JAX_NUM_CPU_DEVICES="1", **FP64)
    words = f"--parallel.preset {preset}"
    many = train(tmp_path, words, "many", JAX_NUM_CPU_DEVICES="8", **FP64)
    losses = [[x["loss"] for x in read_lines(run, "train")] for run in (alone, many)]
    assert len(losses[0]) == STEPS
    np.testing.assert_allclose(*losses, rtol=TOLERANCE)


@pytest.mark.exhaustive
def test_half_precisions_have_about_the_losses_of_float32(tmp_path: Path):
    found, loss = {}, "simclr"
    for policy in ("fp32", "bf16", "fp16"):
        write_recipe(tmp_path / "recipe.py", run_text(loss, precision=repr(policy)))
        lines = read_lines(train(tmp_path, run=policy), "train")
        found[policy] = np.array([line["loss"] for line in lines])
        assert np.isfinite(found[policy]).all(), policy
    # Losses of some units, of cosines that bfloat16 rounds by 0.004, of one temperature
    # in two; and before the first steps have moved apart.
    for policy in ("bf16", "fp16"):
        np.testing.assert_allclose(found[policy][0], found["fp32"][0], rtol=0.01)


@pytest.mark.slow
@each_row(
    ("loss", "words", "message"),
    [
        ("simclr", "--data.repeats 1", "data.repeats = 1 with task = 'self_supervi"),
        ("simclr", "--data.repeats 4", "the loss compares two views of each image"),
        ("simclr", "--train.accumulate-steps 2", "compares all examples of a batch"),
        ("simclr", "--data.augment.mixup 0.2", "is not a view of either"),
        ("byol", "--train.ema-decay None", "is the EMA of the weights"),
        ("byol", "--train.freeze projection", "trains the layers"),
    ],
)
def test_what_has_no_meaning_is_refused(
    tmp_path: Path, loss: str, words: str, message: str
):
    write_recipe(tmp_path / "recipe.py", run_text(loss))
    result = Cli(tmp_path)(*f"--config recipe.py --workdir run {words}".split())
    assert result.code == 2, result.stdout
    assert message in result.stderr, result.stderr


@each_row(
    ("options", "message"),
    [
        ({"loss": "byol", "temperature": 0.2}, "has no effect with task.loss = 'byol'"),
        ({"projection_size": 1}, "projection_size = 1: expected 2 to 65536"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        SelfSupervised((8, 8, 1), {}, **options)
