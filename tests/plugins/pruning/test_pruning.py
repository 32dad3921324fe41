"""Pruning: which weights, how many, when, and that steps keep to the masks."""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import own, trees
from jaxtrain.config import (
    Config,
    ConvNetConfig,
    CustomConfig,
    DataConfig,
    LBFGSConfig,
    SamConfig,
    TrainConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.plugins.pruning.config import PruneConfig
from jaxtrain.plugins.pruning.kernels import find_kernels
from jaxtrain.plugins.pruning.times import pruning_steps
from jaxtrain.plugins.pruning.transform import Pruning, masked
from jaxtrain.trainer.periods import make_timetable
from jaxtrain.trainer.setup import make_blueprint
from jaxtrain.training import precision
from jaxtrain.training.frozen import NOTHING, Frozen
from jaxtrain.training.methods.plain import Plain
from jaxtrain.training.sparsity import describe_sparsity, sparsity_of
from jaxtrain.training.state import TrainState, split_model
from tests.helpers.command import float64
from tests.helpers.layered import EPOCH, Steps, layered, take_steps
from tests.helpers.numerics import same
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned

# Weights in tenths: many are equal.
RNG = np.random.default_rng(0)
SHAPES = {"a/kernel": (3, 3, 4, 8), "b/kernel": (16, 5), "c/kernel": (8, 3)}
WEIGHTS = {path: np.round(RNG.normal(size=s), 1) for path, s in SHAPES.items()}
# After the first step of six, to the fourth, with the second and third between.
TIMES = {"start_epochs": 1 / EPOCH, "end_epochs": 4 / EPOCH}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    return {path.partition("/")[0]: {"kernel": x} for path, x in flat.items()}


def pruning(**fields: Any) -> Pruning:
    values = {"start": 0, "end": 0, "every": 1, "sparsity": 0.5, **fields}
    return Pruning(**{"kernels": tuple(SHAPES), **values})


def first_of(weights: np.ndarray, number: int) -> np.ndarray:
    """Return which weights are the smallest; of equal ones the first are."""
    flat = np.abs(weights.ravel())
    chosen = np.zeros(flat.size, bool)
    chosen[np.argsort(flat, kind="stable")[:number]] = True
    return chosen.reshape(weights.shape)


def masks_of(one: Pruning, dtype: str = "float32") -> dict[str, np.ndarray]:
    params = {p: jnp.asarray(x, dtype) for p, x in WEIGHTS.items()}
    made = jax.jit(one.init)(nested(params), {})
    return {p: np.asarray(x) for p, x in trees.by_path(made["masks"]).items()}


@each_row(
    ("dtype", "sparsity"), [("float32", 0.001), ("bfloat16", 0.9), ("float64", 0.7)]
)
def test_the_smallest_weights_of_all_layers_are_pruned(dtype: str, sparsity: float):
    """As NumPy sorts them, to the last weight, though many are equal."""
    with float64(enable=dtype == "float64"):
        found = masks_of(pruning(sparsity=sparsity), dtype)
        flat = np.concatenate([x.ravel() for x in WEIGHTS.values()])
        flat = np.asarray(jnp.asarray(flat, dtype), np.float64)
    expected = ~first_of(flat, round(sparsity * flat.size))
    ours = np.concatenate([found[path].ravel() for path in SHAPES])
    np.testing.assert_array_equal(ours, expected)


@each_row(("keep", "of"), [(2, 4), (1, 2), (3, 8)])
def test_a_pattern_keeps_the_largest_of_input_channels_in_a_row(keep: int, of: int):
    kernels = tuple(p for p, x in WEIGHTS.items() if x.shape[-2] % of == 0)
    found = masks_of(pruning(kernels=kernels, group=(keep, of)))
    for path in kernels:
        # Of each output, and of a convolution of each place of the kernel.
        rows = np.moveaxis(WEIGHTS[path], -2, -1).reshape(-1, of)
        expected = np.stack([~first_of(row, of - keep) for row in rows])
        ours = np.moveaxis(found[path], -2, -1).reshape(-1, of)
        np.testing.assert_array_equal(ours, expected)
        assert (ours.sum(-1) == keep).all()


def pruned(one: Pruning, params: Any, extra: Any, step: int) -> TrainState:
    """Return the state after `step` steps of such parameters."""
    state = TrainState(
        step=jnp.int32(step),
        params=params,
        model_state={},
        opt_state={},
        extras={"pruning": extra},
    )
    return jax.jit(one.after)(state, state, None)[0]


def test_the_order_in_memory_changes_nothing():
    """As kernels lie on a single GPU: output channels first."""
    params = nested({p: jnp.asarray(x, jnp.float32) for p, x in WEIGHTS.items()})
    found = []
    for order in (None, (3, 0, 1, 2)):
        one = pruning(start=1, end=1, kernel_order=order)
        found.append(pruned(one, params, one.init(params, {}), 1))
    assert same(*found)
    weights = trees.by_path(found[0].params)
    assert sum((x == 0).sum() for x in weights.values()) >= 196


def test_the_schedule_is_the_cubic_one():
    """Zhu and Gupta 2017, equation 1, in exact fractions."""
    last = Fraction(9, 10)
    one = pruning(start=10, end=50, every=7, sparsity=0.9)
    for step in (10, 17, 31, 45, 50):
        part = 1 - Fraction(step - 10, 40)
        expected = last - last * part**3
        found = float(one.sparsity_at(jnp.int32(step)))
        assert found == pytest.approx(float(expected), abs=1e-6)
    due = [step for step in range(70) if one.is_due(jnp.int32(step))]
    assert due == [10, 17, 24, 31, 38, 45, 50]
    at_once = pruning(start=4, end=4, sparsity=0.9)
    assert [step for step in range(9) if at_once.is_due(jnp.int32(step))] == [4]
    assert float(at_once.sparsity_at(jnp.int32(4))) == pytest.approx(0.9)


def test_masks_apply_to_arrays_of_their_paths():
    tree = nested({p: jnp.asarray(x) for p, x in WEIGHTS.items()})
    masks = {"a": {"kernel": jnp.zeros(SHAPES["a/kernel"], bool)}}
    # As copies of weights have it, a dim before theirs.
    tree["a"]["kernel"] = jnp.full((2, *SHAPES["a/kernel"]), -jnp.inf)
    found = masked(tree, masks)
    assert not found["a"]["kernel"].any()
    assert not np.signbit(found["a"]["kernel"]).any()
    assert same(found["b"], tree["b"])
    assert masked(tree, {}) is tree


def model_of(name: str, **options: Any) -> Model:
    config = Config(model=model_config(name, **options))
    policy = precision.parse("fp32")
    return make_blueprint(config, policy, (32, 32, 3), 10).abstract()


def kernels_of(model: Model, frozen: Frozen = NOTHING, **fields: Any) -> set[str]:
    values = {"sparsity": 0.5, **fields}
    params = split_model(model)[1]
    return {*find_kernels(PruneConfig(**values), model, params, frozen)}


def test_which_kernels_are_pruned():
    convnet = model_of("convnet", width=0.25)
    assert kernels_of(convnet) == {"conv2/kernel"}
    assert kernels_of(convnet, layers=("conv*", "head")) == {
        *("conv1/kernel", "conv2/kernel", "head/linear/kernel")
    }
    frozen = Frozen(frozenset({"conv2"}))
    assert kernels_of(convnet, frozen, layers=("conv*",)) == {"conv1/kernel"}
    # Three input channels have no groups of four.
    pattern = {"sparsity": None, "pattern": "2:4", "layers": ("conv*",)}
    assert kernels_of(convnet, **pattern) == {"conv2/kernel"}
    with pytest.raises(UserError, match="no kernels to prune") as error:
        kernels_of(convnet, frozen)
    assert "prune.sparsity = 0.5" in str(error.value)
    with pytest.raises(UserError, match=r"prune\.layers"):
        kernels_of(convnet, layers=("stage9",))


def test_depthwise_kernels_are_left_out():
    model = model_of("mobilenet_v2", width=0.25)
    shapes = {p: x.shape for p, x in trees.by_path(split_model(model)[1]).items()}
    found = kernels_of(model)
    assert found and all(shapes[path][-2] > 1 for path in found)
    left = {p for p, x in shapes.items() if len(x) > 1 and x[-2] > 1} - found
    assert len(left) == 2 and "head/linear/kernel" in left


def times(total: int = 100, **sections: Any) -> tuple[int, int, int] | None:
    """Return the steps of the prunings of a run of epochs of ten steps."""
    fields = sections.pop("prune", {"sparsity": 0.5})
    train = {"steps": total, **sections.pop("train", {})}
    config = Config(
        data=DataConfig(batch_size=10),
        train=TrainConfig(**train),
        **sections,
    )
    prune = PruneConfig(**fields)
    timetable = make_timetable(config, 100, has_validation=True)
    return pruning_steps(prune, config, timetable) if prune.is_on else None


@each_row(
    ("fields", "expected"),
    [
        ({"sparsity": 0.5}, (250, 750, 15)),
        ({"sparsity": 0.5, "start_epochs": 1.0, "end_epochs": 2.0}, (10, 20, 1)),
        ({"sparsity": 0.5, "end_epochs": 2.0}, (20, 20, 1)),
        ({"sparsity": 0.5, "start_epochs": 90.0}, (900, 900, 1)),
        ({"pattern": "2:4"}, (250, 250, 1)),
        ({}, None),
    ],
)
def test_times_are_epochs_with_defaults_by_the_run(fields: Any, expected: Any):
    assert times(1000, prune=fields) == expected


def test_times_of_a_fine_tuned_run():
    trained = ConvNetConfig(pretrained="runs/other")
    assert times(1000, model=trained) == (0, 750, 23)
    frozen = {"freeze": ("stem*",), "freeze_epochs": 30.0}
    assert times(1000, model=trained, train=frozen) == (300, 750, 14)


@each_row(
    ("fields", "sections", "told"),
    [
        (
            {"start_epochs": 5.0, "end_epochs": 4.0},
            {},
            "prune.end_epochs = 4: pruning ends after 40",
        ),
        ({"start_epochs": 10.0}, {}, "prune.start_epochs = 10.0: pruning ends"),
        ({"end_epochs": 10.0}, {}, "prune.end_epochs = 10.0: pruning ends"),
        (
            {"start_epochs": 1.0},
            {"train": {"freeze": ("stem*",), "freeze_epochs": 2.0}},
            "frozen for the first 2 epochs",
        ),
        ({"sparsity": 1.0}, {}, "sparsity = 1.0"),
        ({"sparsity": None, "pattern": "4:4"}, {}, "0 < N < M"),
        ({"sparsity": None, "pattern": "2/4"}, {}, "pattern = '2/4'"),
        ({"sparsity": None, "pattern": "2:64"}, {}, "M at most 32"),
    ],
)
def test_what_does_not_fit_is_told(fields: Any, sections: Any, told: str):
    with pytest.raises(UserError) as error:
        times(prune={"sparsity": 0.5, **fields}, **sections)
    assert told in str(error.value)


def test_evaluations_before_the_last_pruning_rank_nothing():
    assert pruning(start=1, end=750).settled_after == 750


def test_how_sparse_a_model_is():
    params = {"a": {"kernel": jnp.eye(4), "bias": jnp.zeros(4)}}
    params["b"] = {"kernel": jnp.ones((2, 2, 1, 3))}
    found = sparsity_of(params)
    assert found is not None
    assert found["layers"]["a/kernel"] == {
        "weights": 16,
        "nonzero": 4,
        "sparsity": 0.75,
    }
    assert (found["weights"], found["nonzero"]) == (28, 16)
    rows = describe_sparsity(found)
    assert rows["a/kernel"] == "4 of 16 weights are not 0: 75.00% sparse"
    assert sparsity_of({"b": params["b"]}) is None


class Moving(Plain):
    """Tells how many weights a method may move the trained parameters by."""

    def gradients(
        self, objective: Any, params: Any, model_state: Any, batch: Any, key: Any
    ) -> Any:
        given = params, model_state, batch, key
        grads, state, metrics = super().gradients(objective, *given)
        ones = objective.all_reduce(jax.tree.map(jnp.ones_like, params))
        moved = sum(jnp.sum(x) for x in jax.tree.leaves(ones))
        return grads, state, {**metrics, "moved": moved}


MOVING = "tests.plugins.pruning.test_pruning:Moving"
own.allow([MOVING])
SGD = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.1}


def take(
    prune: dict[str, Any] | None = None, optimizer: Any = None, **sections: Any
) -> Steps:
    fields = {"sparsity": 0.8, "layers": ("stem", "block"), **TIMES, **(prune or {})}
    train = sections.pop("train", {})
    made = PruneConfig(**fields)
    return take_steps(layered(train, optimizer or SGD, prune=made, **sections))


# Of the layers that are pruned in the tree.
ORDER = ("block", "stem")


def of(state: dict[str, Any]) -> dict[str, Any]:
    """Return the masks of a state, and its sparsity."""
    return state["extras"]["pruning"]


def all_weights(state: dict[str, Any]) -> list[Any]:
    """Return the parameters of a state, and their average if there is one."""
    average = state["extras"].get("average")
    return [state["params"], *([average["params"]] if average else [])]


def assert_held(steps: Steps, number: int = 5120) -> None:
    """Check each state: as sparse as it is to be, nothing comes back, all are 0."""
    gone = np.zeros(number, bool)
    first = steps.states[0]["params"]
    by_chance = np.concatenate([first[n]["kernel"].ravel() == 0 for n in ORDER])
    expected = [0, 0, *(0.8 - 0.8 * (1 - i / 3) ** 3 for i in (1, 2, 3)), 0.8, 0.8]
    for step, state in enumerate(steps.states):
        masks = trees.by_path(of(state)["masks"])
        assert list(masks) == [f"{name}/kernel" for name in ORDER]
        now = ~np.concatenate([x.ravel() for x in masks.values()])
        assert not (gone & ~now).any()
        gone = now
        assert gone.sum() == pytest.approx(expected[step] * number, abs=1)
        assert of(state)["sparsity"] == pytest.approx(gone.mean(), abs=1e-6)
        for weights in map(trees.by_path, all_weights(state)):
            flat = np.concatenate([weights[path].ravel() for path in masks])
            # Nothing else is 0, but for first weights that bfloat16 rounds to it.
            zeros = by_chance if step < 2 else np.zeros(number, bool)
            np.testing.assert_array_equal((flat == 0) & ~zeros, gone & ~zeros)
    np.testing.assert_allclose(
        steps.metrics["sparsity"],
        [of(state)["sparsity"] for state in steps.states[1:]],
    )


def test_each_step_keeps_to_the_masks():
    """Through momentum, weight decay and the moving average."""
    steps = take({}, train={"ema_decay": 0.9}, method=CustomConfig(name=MOVING))
    assert_held(steps)
    # A method moves no pruned weight; of the others, with biases, norms and the head.
    others = sum(x.size for x in jax.tree.leaves(steps.states[0]["params"])) - 5120
    for moved, state in zip(steps.metrics["moved"], steps.states, strict=False):
        kept = sum(x.sum() for x in jax.tree.leaves(of(state)["masks"]))
        assert moved == kept + others
    # Gradients of pruned weights are no part of the norm, nor then of the momentum.
    before, after = (state["opt_state"] for state in steps.states[-2:])
    masks = trees.by_path(of(steps.states[-1])["masks"])
    old, new = (trees.by_path(x) for x in (before, after))
    for path, mask in masks.items():
        (trace,) = [name for name in new if name.endswith(path)]
        # Of weights that are 0, weight decay is, too.
        np.testing.assert_allclose(new[trace][~mask], 0.9 * old[trace][~mask])


DECAYED = {"weight_decay": 0.1, "learning_rate": 0.01}


@pytest.mark.parametrize(
    "choices",
    thinned(
        4,
        [
            {
                "train": {"swa_start_epochs": 0.4, "accumulate_steps": 2},
                "optimizer": {**SGD, "clip_norm": 0.1, "layer_decay": 0.5},
            },
            {"optimizer": {"name": "schedule_free_sgd", "weight_decay": 0.1}},
            {"optimizer": {**SGD, "lookahead_steps": 2}, "method": SamConfig()},
            {
                "optimizer": {"name": "adamw", **DECAYED},
                "precision": "pure_bf16",
                "train": {"ema_decay": 0.9},
            },
            {"optimizer": {"name": "muon", **DECAYED}, "precision": "fp16"},
            {"optimizer": {"name": "prodigy", "learning_rate": 1.0}},
        ],
    ),
    ids=str,
)
def test_masks_hold_with(choices: dict[str, Any]):
    assert_held(take({}, **choices))


def test_a_pattern_holds_from_its_start_on():
    prune = {"sparsity": None, "pattern": "2:4", **dict.fromkeys(TIMES)}
    steps = take({**prune, "start_epochs": 2 / EPOCH}, train={"ema_decay": 0.9})
    for step, state in enumerate(steps.states):
        for weights in all_weights(state):
            for name in ("stem", "block"):
                kernel = weights[name]["kernel"]
                kept = (kernel.T.reshape(-1, 4) != 0).sum(-1)
                assert (kept == (2 if step >= 2 else 4)).all()


@pytest.mark.slow
def test_a_step_that_is_skipped_prunes_what_is_due():
    """Each loss is above the limit, which spikes are told by from the tenth step on."""
    skipping = {"spike_sigma": 1e-6}
    prune = {"start_epochs": 0.0, "end_epochs": 20 / EPOCH}
    train = {"steps": 24, **skipping}
    steps = take(prune, optimizer={"learning_rate": 1.0}, train=train)
    assert steps.metrics["skipped"].any()
    assert steps.metrics["sparsity"][19] == pytest.approx(0.8, abs=1e-3)


@pytest.mark.slow
def test_frozen_layers_are_not_pruned():
    """Nor are they before they are trained."""
    prune = {"layers": (), "start_epochs": 2.0, "end_epochs": 3.0}
    train = {"steps": 12, "freeze": ("block",), "freeze_epochs": 2.0}
    steps = take(prune, train=train)
    first = steps.states[0]["params"]["block"]["kernel"]
    for state in steps.states[: 2 * EPOCH]:
        np.testing.assert_array_equal(state["params"]["block"]["kernel"], first)
    last = steps.states[-1]["params"]["block"]["kernel"]
    assert np.mean(last == 0) == pytest.approx(0.8, abs=1e-3)
    throughout = {"train": {"freeze": ("stem*",)}}
    prune = {"layers": ("stem", "block")}
    steps = take(prune, **throughout)
    assert set(trees.by_path(of(steps.states[-1])["masks"])) == {"block/kernel"}
    assert (steps.states[-1]["params"]["stem"]["kernel"] != 0).all()


def test_lbfgs_is_refused():
    with pytest.raises(UserError, match=r"prune\.sparsity = 0\.5 with optimizer"):
        sections: Any = {"prune": PruneConfig(sparsity=0.5)}
        Config(optimizer=LBFGSConfig(), **sections)
