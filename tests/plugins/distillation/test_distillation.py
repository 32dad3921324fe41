"""Distillation: a step against its formula, the teacher's images, and what it costs."""

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from PIL import Image
from safetensors.numpy import load_file, save_file

from jaxtrain.config import (
    AugmentConfig,
    Config,
    ConvNetConfig,
    DataConfig,
    SGDConfig,
    SoundConfig,
    TrainConfig,
)
from jaxtrain.config.part import METHODS, TASKS, make_part
from jaxtrain.config.recipe import load_config
from jaxtrain.data import datasets, sources
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.errors import DamagedError, UserError
from jaxtrain.inference import folder
from jaxtrain.inference.model import make_model
from jaxtrain.parallel import devices
from jaxtrain.plugins.distillation.distillation import Distillation
from jaxtrain.plugins.distillation.options import DistillationConfig
from jaxtrain.plugins.distillation.teacher import GREY, CachedTeacherOutputs, Teacher
from jaxtrain.plugins.distillation.weights import TeacherWeights
from jaxtrain.plugins.plan.measure import run_steps
from jaxtrain.plugins.sound.sound_input import SoundInput
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.classification import Classification
from jaxtrain.tasks.regression import Regression
from jaxtrain.trainer.cached_outputs import changes_of_images
from jaxtrain.trainer.resolve import ResolvedConfig, open_weights, resolve_config
from jaxtrain.training.flops import count_flops
from jaxtrain.training.forward import predict
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.inputs import MethodContext
from jaxtrain.training.methods.plain import Plain
from jaxtrain.training.step import make_train_step
from jaxtrain.weights import resolve, trust
from jaxtrain.weights.names import OWN
from jaxtrain.weights.sources import SOURCES
from jaxtrain.weights.spec import check_kept
from jaxtrain.weights.stored import Transfer, Weights, abstract_weights, shapes_of
from tests.helpers import damage, labelled, taught, tiny
from tests.helpers.axes import assert_same_with
from tests.helpers.layered import layered, take_steps
from tests.helpers.masked import mask_recipe, write_masks
from tests.helpers.numerics import FP64, close
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS, recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import arrays, assert_same_run, read_lines
from tests.helpers.tiers import thinned
from tests.helpers.trial import CLASSES, IMAGES, LABELS, LAYOUT, SHAPE, Trial, as_given

RATE = 0.1
SGD = SGDConfig(learning_rate=RATE, momentum=0.0)
SEEN = Normalization((0.5,), (0.25,))


def make_teacher(**changes: Any) -> tuple[Teacher, Any]:
    """Return a teacher of the images of a trial, and its weights."""
    about = taught.describe(**{"image_shape": SHAPE, **changes})
    teacher = Teacher(
        apply=lambda weights, x: predict(
            nnx.graphdef(about.abstract), weights[0], weights[1], x
        ),
        layout=LAYOUT,
        normalization=Normalization(about.mean, about.std),
        image_shape=about.image_shape,
        interpolation=about.interpolation,
        dtype=jnp.float32,
    )
    return teacher, taught.weights(about)


LOGITS = jax.ShapeDtypeStruct((2, CLASSES), jnp.float32)


def one_step(trial: Trial, method: Any, method_arrays: Any) -> tuple[Any, Any]:
    """Return the parameters and the metrics of one step of SGD."""
    step = make_train_step(
        trial.task,
        trial.graphdef,
        trial.phase,
        as_given,
        LAYOUT,
        method=method,
        normalization=SEEN,
    )
    batch = {
        "image": IMAGES[:1],
        "target": LABELS[:1],
        "index": np.arange(LABELS.shape[1])[None],
    }
    arguments = trial.state, jax.random.key(0), {}, batch
    state, metrics = jax.jit(step)(*arguments, method_arrays=method_arrays)
    return state.params, jax.device_get(metrics)


def test_a_step_lowers_what_hinton_says():
    trial, (teacher, weights) = Trial(optimizer=SGD), make_teacher()
    method = Distillation(teacher="here", weight=0.7, temperature=2.0)

    def loss_fn(params: Any) -> Any:
        model = nnx.merge(trial.graphdef, params, trial.state.model_state, copy=True)
        model.train()
        logits = model(jnp.asarray(IMAGES[0]))
        log_p = jax.nn.log_softmax(logits)
        picked = jnp.take_along_axis(log_p, LABELS[0][:, None], 1)
        soft = jax.nn.log_softmax(logits / 2)
        apart = 4 * jnp.sum(jnp.exp(said) * (said - soft), -1).mean()
        return -0.3 * picked.mean() + 0.7 * apart, (-picked.mean(), apart)

    # The teacher sees the pixels that the student has seen, normalised as its own.
    pixels = IMAGES[0] * 0.25 + 0.5
    about = taught.describe(image_shape=SHAPE)
    logits = predict(
        nnx.graphdef(about.abstract), weights[0], weights[1], (pixels - 0.4) / 0.3
    )
    said = jax.nn.log_softmax(logits / 2)
    differentiated = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))
    (loss, (own, apart)), grads = differentiated(trial.state.params)
    params, metrics = one_step(
        trial, method.with_teacher(teacher, trial.task, LOGITS), weights
    )
    # The same float32 sums in another order.
    np.testing.assert_allclose(metrics["loss"][0], loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["label_loss"][0], own, rtol=1e-5)
    np.testing.assert_allclose(metrics["teacher_loss"][0], apart, rtol=1e-4)
    assert apart > 0.01
    expected = jax.tree.map(lambda p, g: p - RATE * g, trial.state.params, grads)
    close(params, expected, rtol=1e-4, atol=1e-6)


def test_a_step_costs_a_plain_one_and_the_forward_pass_of_the_teacher():
    trial, (teacher, weights) = Trial(optimizer=SGD, compute=False), make_teacher()
    batch = {
        "image": IMAGES[:1],
        "target": LABELS[:1],
        "index": np.zeros(LABELS[:1].shape, np.int32),
    }

    def flops(method: Any, **method_arrays: Any) -> int:
        step = make_train_step(
            trial.task, trial.graphdef, trial.phase, as_given, LAYOUT, method=method
        )
        root = jax.eval_shape(lambda: jax.random.key(0))
        traced = jax.jit(step).trace(trial.state, root, {}, batch, **method_arrays)
        return count_flops(traced.jaxpr.jaxpr)

    asked = jax.jit(teacher.apply)
    forward = asked.trace(weights, IMAGES[0])
    method = Distillation(teacher="here").with_teacher(teacher, trial.task, LOGITS)
    plain = flops(Plain())
    assert flops(method, method_arrays=weights) == plain + count_flops(
        forward.jaxpr.jaxpr
    )
    assert plain > 0
    kept = Distillation(teacher="here").with_teacher(
        CachedTeacherOutputs(), trial.task, LOGITS
    )
    answers = jax.ShapeDtypeStruct((4, CLASSES), jnp.float32)
    assert flops(kept, method_arrays=answers) == plain


# What a teacher is trained on -> images of the student, and those that it sees.
COLOUR = np.random.default_rng(1).integers(0, 256, (2, 12, 12, 3)).astype(np.float32)


def test_images_that_are_alike_are_not_touched():
    teacher, _ = make_teacher(mean=SEEN.mean, std=SEEN.std)
    np.testing.assert_array_equal(teacher.prepare(IMAGES[0], SEEN), IMAGES[0])


def test_a_teacher_sees_images_in_its_own_statistics_channels_and_size():
    theirs = {"mean": (0.2, 0.3, 0.4), "std": (0.5, 0.6, 0.7)}
    teacher, _ = make_teacher(image_shape=(*SHAPE[:2], 3), **theirs)
    pixels = IMAGES[0] * 0.25 + 0.5
    expected = (pixels - np.array(theirs["mean"])) / np.array(theirs["std"])
    found = teacher.prepare(IMAGES[0], SEEN)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    same = Normalization((0.0,) * 3, (1.0,) * 3)
    teacher, _ = make_teacher(image_shape=(12, 12, 1), mean=(0.0,), std=(1.0,))
    found = teacher.prepare(jnp.asarray(COLOUR), same)
    grey = [Image.fromarray(x.astype(np.uint8)).convert("L") for x in COLOUR]
    # Pillow rounds.
    np.testing.assert_allclose(
        found[..., 0], np.stack([np.asarray(x) for x in grey]), atol=0.51
    )
    np.testing.assert_allclose(found[..., 0], COLOUR @ np.array(GREY), rtol=1e-5)

    for name, method in (
        ("bilinear", Image.Resampling.BILINEAR),
        ("bicubic", Image.Resampling.BICUBIC),
    ):
        for size in (7, 20):
            shape = {"image_shape": (size, size, 3), "interpolation": name}
            teacher, _ = make_teacher(**shape, mean=same.mean, std=same.std)
            found = teacher.prepare(jnp.asarray(COLOUR), same)
            for image, ours in zip(COLOUR, found, strict=True):
                for channel in range(3):
                    one = Image.fromarray(image[..., channel])
                    theirs_of = np.asarray(one.resize((size, size), method))
                    np.testing.assert_allclose(
                        ours[..., channel], theirs_of, rtol=1e-4, atol=1e-2
                    )


NAMES = ("ant", "bee", "cat", "dog")


def plan(given: Any = None, name: str = "classification", **changes: Any) -> Teacher:
    """Return the teacher that a run on such a task has."""
    return planned(given, name, **changes)[1].teacher


def planned(
    given: Any = None,
    name: str = "classification",
    data: DataConfig = DataConfig(),  # noqa: B008 (frozen)
    **changes: Any,
) -> tuple[Method, TeacherWeights]:
    """Return the method that knows the teacher, and this, on four classes."""
    about = taught.describe(**changes)
    shapes = shapes_of(taught.weights(about))
    stored = {OWN.name(path): shape for path, shape in shapes.items()}
    trained = Weights("here", about, stored, str, dict)
    options: dict[str, Any] = {"teacher": "runs/teacher"}
    train = TrainConfig(steps=1)
    images = jax.ShapeDtypeStruct((2, 8, 8, 1), jnp.float32)
    facts = {"num_classes": 4, "class_names": NAMES}
    task = given or Classification((8, 8, 1), facts)
    config = Config(
        task=make_part(TASKS, name),
        method=DistillationConfig(**options),
        train=train,
        data=data,
    )
    source = sources.load(DataConfig(source="synthetic:8x8x1/4/40"), 0).train
    method = Distillation(**options)
    method.trained = trained
    method, teacher = method.plan_inputs(
        MethodContext(config, task, source, LAYOUT, images)
    )
    assert teacher is not None
    return method, teacher


FLIP = AugmentConfig(horizontal_flip=True)


def test_outputs_are_kept_where_images_stay_the_same(monkeypatch: pytest.MonkeyPatch):
    def told(**options: Any) -> str:
        return planned(**options)[1].describe()["teacher outputs"]

    assert told() == "computed once, 0.0 MB on each device"
    _, teacher = planned()
    assert teacher.abstract.shape == (36, 4)
    assert "images are augmented" in told(data=DataConfig(augment=FLIP))
    assert "differ in size" in told(data=DataConfig(image_size=12, train_image_size=8))
    sound = SoundInput(SoundConfig(random_crop=True))
    why = "clips are cropped at random (data.sound.random_crop)"
    assert changes_of_images(DataConfig(), sound)[why]
    with monkeypatch.context() as patched:
        patched.setattr(datasets, "CACHE_FRACTION", 1e-12)
        assert "more than 0 MB" in told()
    monkeypatch.setattr(Distillation, "caches_teacher", False)
    reason = "the method may need outputs for other images"
    assert told() == f"computed in each step: {reason}"


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"num_outputs": 4, "image_shape": (12, 9, 1)}])
def test_the_run_with_kept_outputs_is_that_which_asks_in_each_step(
    changes: dict[str, Any], tmp_path: Path
):
    place = taught.write_teacher(tmp_path / "teacher", **changes)
    method = DistillationConfig(teacher=str(place), teacher_precision="fp64")
    data = DataConfig(source="synthetic:8x8x1/4/24", batch_size=8, repeats=2)
    config = layered({"accumulate_steps": 2}, data=data, method=method)
    kept = take_steps(config)
    with mock.patch.object(datasets, "CACHE_FRACTION", 1e-12):
        asked = take_steps(config)
    assert kept.metrics["teacher_loss"].min() > 0
    for name in ("loss", "teacher_loss", "grad_norm"):
        # Of images that are resized in batches of another size, sums in another order.
        np.testing.assert_allclose(kept.metrics[name], asked.metrics[name], rtol=1e-9)


def test_classes_in_another_order_are_put_in_order():
    teacher = plan(class_names=("dog", "ant", "cat", "bee"))
    says = dataclasses.replace(teacher, apply=lambda weights, *_: weights)
    logits = jnp.asarray([[4.0, 1.0, 3.0, 2.0]])
    found = says.ask(logits, {"image": jnp.zeros((1, 8, 8, 1))}, SEEN)
    np.testing.assert_array_equal(found, [[1, 2, 3, 4]])


def test_classes_without_names_are_those_of_their_places():
    assert plan().order is None
    assert plan(class_names=NAMES).order is None


class Quiet(Classification):
    """A task with an objective of its own."""

    def objective(self, forward: Any, batch: Any, key: Any) -> Any:
        raise NotImplementedError


@each_row(
    ("changes", "told"),
    [
        ({"task": "segmentation"}, "was trained on task = 'segmentation'"),
        (
            {"class_names": ("ant", "bee", "cat", "eel")},
            "the teacher lacks 'dog' and also has 'eel'; fine-tune",
        ),
        (
            {"num_outputs": 5, "class_names": (*NAMES, "eel")},
            "5 classes, but this run has 4: the teacher also has 'eel'",
        ),
        ({"image_shape": (8, 8, 2), "mean": (0.5, 0.5)}, "images with 2 channels, but"),
        ({"input": SoundInput(SoundConfig())}, "data.sound"),
        (
            {"image_shape": (2, 2, 1)},
            "of at least 4x4 pixels",
        ),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(changes: dict[str, Any], told: str):
    if "mean" in changes:
        changes = {**changes, "std": changes["mean"]}
    with pytest.raises(UserError) as error:
        plan(**changes)
    assert told in str(error.value)


def test_tasks_that_cannot_be_taught_are_refused():
    method = Distillation(teacher="runs/teacher")
    with pytest.raises(UserError, match="the task defines its own training objective"):
        method.check(Quiet((8, 8, 1), {"num_classes": 4}), "quiet")
    with pytest.raises(UserError, match="the task has no distillation loss"):
        method.check(Task(), "embedding")
    regression = Regression((8, 8, 1), {}, mean=(0.0,), std=(1.0,))
    changes = {"task": "regression", "num_outputs": 1, "class_names": None}
    with pytest.raises(UserError, match=r"set --task\.mean 3"):
        plan(regression, "regression", **changes, task_options={"mean": 3})


def config_of(teacher: Path | str, **options: Any) -> Config:
    return Config(
        train=TrainConfig(steps=1),
        method=DistillationConfig(**{"teacher": str(teacher), **options}),
    )


def test_a_config_holds_the_digest_of_its_teacher(tmp_path: Path):
    place = taught.write_teacher(tmp_path / "teacher")
    resolved = resolve_config(config_of(place))
    digest = opened(resolved).digest()
    assert resolved.config.method.arguments()["teacher_digest"] == digest
    # A run that is opened again has it.
    assert resolve_config(resolved.config).config == resolved.config
    assert (
        resolve_config(config_of(place, teacher_digest=digest[:8])).config
        == resolved.config
    )
    with pytest.raises(UserError, match="give the intended weights"):
        resolve_config(config_of(place, teacher_digest="0" * 8))
    with pytest.raises(UserError, match=r"aside, which contains method\.teacher = "):
        check_kept(config_of(place), tmp_path)


def test_trust_shows_the_parts_that_a_teacher_names(monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []
    monkeypatch.setattr(trust, "trust", shown.append)
    trust.trust_recipe(None, config_of("runs/teacher"))
    assert shown == ["runs/teacher"]
    with pytest.raises(
        UserError, match="or a teacher, as custom code named by the recipe"
    ):
        trust.trust_recipe(None, Config())


def opened(resolved: ResolvedConfig) -> Weights:
    """Return the weights of the teacher of a run."""
    method = resolved.method
    assert isinstance(method, Distillation) and method.trained is not None
    return method.trained


def broken_file(place: Path) -> None:
    damage.truncate(place / "model.safetensors")


def missing_file(place: Path) -> None:
    (place / "model.safetensors").unlink()


def broken_config(place: Path) -> None:
    damage.truncate(place / "config.json")


@each_row("broken", [broken_file, missing_file, broken_config])
def test_a_teacher_with_a_damaged_file_is_named(broken: Any, tmp_path: Path):
    place = taught.write_teacher(tmp_path / "teacher")
    broken(place)
    with pytest.raises(UserError) as error:
        opened(resolve_config(config_of(place))).read()
    assert str(place) in str(error.value) and len(str(error.value)) < 400


def test_a_teacher_whose_checkpoint_is_damaged_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = taught.write_teacher(tmp_path / "teacher")
    trained = resolve.load(str(place))

    def fail(*_: Any) -> Any:
        raise DamagedError("step 8: params/conv1 does not match the saved digest")

    told = r"method.teacher = .*teacher': step 8: params/conv1 does not"
    for find in (fail, lambda *_: dataclasses.replace(trained, read=fail)):
        monkeypatch.setattr(resolve, "load", find)
        with pytest.raises(UserError, match=told):
            opened(resolve_config(config_of(place))).read()
    model = ConvNetConfig(name="convnet", width=0.125, pretrained=str(place))
    with pytest.raises(UserError, match=r"model.pretrained = .*step 8: params/conv1"):
        open_weights(model).read()


def test_weights_that_are_not_finite_are_no_teacher(tmp_path: Path):
    about = taught.describe()
    params, model_state = taught.weights(about)
    params["conv1"]["kernel"][0, 0, 0, 0] = np.nan
    origin = {"step": None, "run": None, "weights": ""}
    folder.write(make_model(about, params, model_state, origin, ""), tmp_path / "nan")
    trained = resolve.load(str(tmp_path / "nan"))
    layers = abstract_weights(trained.about)[0]
    put = Transfer(trained).fill
    put(({"norm1": layers["norm1"]}, {}), lambda x, _: x)
    with pytest.raises(UserError, match=r"nan.*conv1.kernel has values that are NaN"):
        put((layers, {}), lambda x, _: x)


@each_row(
    ("options", "told"),
    [
        ({}, "teacher = None: expected the weights of a trained"),
        ({"teacher": "a", "weight": 0.0}, "weight = 0.0: expected 0 < value <= 1"),
        ({"teacher": "a", "temperature": 0.0}, "temperature = 0.0: expected a value"),
        (
            {"teacher": "a", "hard": True, "temperature": 2.0},
            "no effect with method.hard",
        ),
        ({"teacher": "a", "teacher_digest": "xyz"}, "digits of a SHA-256"),
        ({"teacher": "a", "layers": 2}, "distillation takes teacher, teacher_digest"),
        ({"teacher": "not/there"}, "not/there"),
    ],
)
def test_options_are_checked(options: dict[str, Any], told: str):
    with pytest.raises(UserError) as error:
        method = make_part(METHODS, "distillation", options)
        resolve_config(Config(method=method, train=TrainConfig(steps=1)))
    assert told in str(error.value)


HOW = {
    "soft": "temperature=2.0",
    "hard": "hard=True",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOW)
def test_losses_of_twenty_steps_are_those_of_pytorch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(SOURCES, "convnet", (tiny.source("timm"),))
    images, _ = labelled.examples()
    np.savez(tmp_path / "train.npz", image=images, label=labelled.classes())
    stored = tiny.STORED / "tiny.safetensors"
    (tmp_path / "tiny.safetensors").write_bytes(stored.read_bytes())
    statistics: dict[str, Any] = {
        "cfg_mean": labelled.TEACHER_MEAN,
        "cfg_std": labelled.TEACHER_STD,
    }
    place = tiny.write_folder(tmp_path / "teacher", **statistics)
    arrays = labelled.teacher_arrays(load_file(stored))
    save_file(arrays, place / "model.safetensors")
    options = (
        "teacher='teacher', teacher_precision='fp64', "
        f"weight={labelled.SHARE}, {HOW[kind]}"
    )
    text = recipe(
        data='DataConfig(source="arrays:train.npz", '
        f"batch_size={labelled.NUM}, validation_fraction=0.0, test_split='train', "
        f"allow_overlap=True, mean={labelled.MEAN}, std={labelled.STD})",
        model='ConvNetConfig(width=0.125, pretrained="tiny.safetensors")',
        optimizer=f"SGDConfig(learning_rate={labelled.RATE}, "
        "momentum=0.9, nesterov=False, warmup_fraction=0.0)",
        method=f"DistillationConfig({options})",
        train=f"TrainConfig(steps={labelled.STEPS})",
        logging="LoggingConfig(every_steps=1, tensorboard=False)",
    )
    write_recipe(tmp_path / "recipe.py", text)
    words = "--config recipe.py --workdir run --precision fp64"
    result = Cli(tmp_path)(*words.split(), **FP64)
    assert result.code == 0, result.stderr
    found = [line["loss"] for line in read_lines(tmp_path / "run", "train")]
    expected = json.loads((tiny.STORED / "taught.json").read_text())[kind]
    assert len(found) == labelled.STEPS
    # Both in float64; a step may send rounding of 1e-16 through a ReLU or a maximum.
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
def test_on_any_devices_a_teacher_says_what_it_does_on_one(tmp_path: Path):
    """Of another size, in grey; in float64.

    Its weights are split over `fsdp`, its images over the batch.
    """
    names = tuple(map(str, range(8)))
    place = taught.write_teacher(
        tmp_path / "teacher",
        num_outputs=8,
        class_names=names,
        image_shape=(24, 24, 1),
    )
    method = DistillationConfig(teacher=str(place), teacher_precision="fp64")
    assert_same_with({}, method)
    # Asked in each step, of images that are augmented.
    assert_same_with({}, method, augment=FLIP)


def array_recipe(task: str, targets: str) -> str:
    """Return a recipe of a tiny run on the arrays of `train.npz`."""
    return recipe(
        task=f"{task}()",
        data=f'DataConfig(source="arrays:train.npz", targets={targets}, batch_size=8, '
        "validation_fraction=0.0, test_split='train', allow_overlap=True)",
        train="TrainConfig(steps=2)",
        logging="LoggingConfig(every_steps=1, tensorboard=False)",
    )


RECIPES = {
    "regression": array_recipe("RegressionConfig", "tuple('ab')"),
    "multilabel": array_recipe("MultilabelConfig", "tuple('abcde')"),
    "segmentation": mask_recipe(train="steps=2"),
}


@pytest.mark.parametrize("task", thinned(3, RECIPES))
def test_other_tasks_have_teachers(task: str, tmp_path: Path, cli: Any):
    if task == "segmentation":
        write_masks(tmp_path / "set")
    else:
        images, labels = labelled.examples()
        if task == "regression":
            labels = labels[:, :2] + np.arange(len(labels))[:, None]
        np.savez(tmp_path / "train.npz", image=images, label=labels)
    config = write_recipe(tmp_path / "recipe.py", RECIPES[task])
    words = ["--config", config, "--workdir"]
    result = cli(*words, "teacher")
    assert result.code == 0, result.stderr
    method = ["--method", "distillation", "--method.teacher", "teacher"]
    result = cli(*words, "run", "--seed", "1", *method)
    assert result.code == 0, result.stderr
    lines = [x for x in read_lines(tmp_path / "run", "train") if "teacher_loss" in x]
    assert lines
    for line in lines:
        both = 0.1 * line["label_loss"] + 0.9 * line["teacher_loss"]
        np.testing.assert_allclose(line["loss"], both, rtol=1e-5)
        assert line["teacher_loss"] > 0


def with_teacher(place: Path) -> str:
    """Return a recipe of eight steps with a teacher."""
    method = f"method=DistillationConfig(teacher={str(place)!r})"
    return EIGHT_STEPS.replace("Config(", f"Config({method}, ", 1)


@pytest.mark.slow
def test_a_run_goes_on_with_its_teacher_and_with_no_other(tmp_path: Path, cli: Any):
    place = taught.write_teacher(tmp_path / "teacher")
    config = write_recipe(tmp_path / "recipe.py", with_teacher(place))
    words = ["--config", config, "--workdir"]
    assert cli(*words, "whole").code == 0
    assert cli(*words, "parts", "--train.stop-after-steps", "3").code == 0
    result = cli(*words, "parts")
    assert result.code == 0, result.stderr
    assert "teacher: convnet at 8x8x1" in result.stdout
    assert_same_run(tmp_path / "whole", tmp_path / "parts", 8)
    state = arrays(tmp_path / "whole", 8)
    assert not any("method_arrays" in name or "teacher" in name for name in state)

    assert cli(*words, "changed", "--train.stop-after-steps", "3").code == 0
    place.rename(tmp_path / "before")
    taught.write_teacher(place, seed=1)
    result = cli(*words, "changed")
    assert result.code == 2
    assert "has changed since the run started" in " ".join(result.stderr.split())


@pytest.mark.exhaustive
def test_what_looks_at_a_step_before_it_is_taken_knows_the_teacher(
    tmp_path: Path, cli: Any
):
    place = taught.write_teacher(tmp_path / "teacher")
    plain = write_recipe(tmp_path / "plain.py", EIGHT_STEPS)
    config = write_recipe(tmp_path / "recipe.py", with_teacher(place))
    found = []
    # Without a flip its outputs are computed once, before the first step.
    words = ["--data.augment.horizontal-flip", "True", "--target", "cpu"]
    for path in (plain, config):
        result = cli("plan", "--config", path, *words, "--out", path.stem)
        assert result.code == 0, result.stderr
        found.append(json.loads((tmp_path / path.stem / "plan.json").read_text()))
    flops, inputs = ([x[n] for x in found] for n in ("flops", "input_bytes"))
    assert flops[1] > 1.2 * flops[0] and inputs[1] > inputs[0]
    assert cli("find-lr", "--config", config, "--steps", "20").code == 0
    with mock.patch.object(devices, "start"):
        assert run_steps(load_config(config))["step_seconds"] > 0
