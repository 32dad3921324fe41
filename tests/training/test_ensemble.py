"""Each member of an ensemble is the run that it would be alone."""

import dataclasses
import math
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import keys, tasks
from jaxtrain.config import AugmentConfig, Config
from jaxtrain.data import loader
from jaxtrain.errors import UserError
from jaxtrain.parallel.sharding import Layout
from jaxtrain.performance.measure import bytes_per_device, compile_step
from jaxtrain.performance.program import read_program
from jaxtrain.run.programs import make_programs
from jaxtrain.run.setup import build_setup
from jaxtrain.training.members import step_members
from jaxtrain.training.state import TrainState
from tests.helpers.axes import assert_same_with
from tests.helpers.command import float64, with_devices
from tests.helpers.layered import Steps, by_path, layered, take_steps
from tests.helpers.numerics import TOLERANCE
from tests.helpers.task_sources import data_of
from tests.helpers.tiers import thinned

NUM = 2
# Option -> settings of the config, by section.
TABLE: dict[str, dict[str, Any]] = {
    "plain": {},
    "adam, clipped": {"optimizer": {"name": "adam", "clip_norm": 0.1}},
    "ema": {"train": {"ema_decay": 0.9}},
    "swa": {"train": {"swa_start_epochs": 1.0}},
    "schedule-free": {"optimizer": {"name": "schedule_free_adamw"}},
    "lookahead": {"optimizer": {"lookahead_steps": 2}},
    "lbfgs": {
        "optimizer": {"name": "lbfgs", "learning_rate": None},
        "data": {"batch_size": 24},
    },
    "micro-batches": {"train": {"accumulate_steps": 2}},
    "several steps a call": {"train": {"steps_per_call": 2}},
    "remat": {"train": {"remat": "full"}},
    "frozen": {"train": {"freeze": ("stem*",)}},
    "fine-tuned": {"train": {"fine_tune": True, "freeze_epochs": 1.0}},
    "spikes": {"train": {"spike_sigma": 10.0}},
    "fp16": {"precision": "fp16"},
    "sam": {"train": {"method": "sam"}},
    "adversarial": {
        "train": {
            "method": "adversarial",
            "method_options": {"norm": "l2", "steps": 1, "epsilon": 0.1},
        }
    },
    "groups of batch norm": {"parallel": {"batch_norm": 4}},
}


def config_of(settings: dict[str, Any], members: int) -> Config:
    """Return the config of a tiny run with some settings."""
    sections = dict(settings)
    train = {"ensemble": members, **sections.pop("train", {})}
    optimizer = sections.pop("optimizer", {})
    plain = layered()
    for name in ("parallel", "data"):
        values = sections.pop(name, {})
        sections[name] = dataclasses.replace(getattr(plain, name), **values)
    return layered(train, optimizer, **sections)


def member(steps: Steps, index: int) -> dict[str, np.ndarray]:
    """Return the arrays of one member after the last step."""
    arrays = by_path(steps.states[-1])
    shared = ("step", "plateau")
    return {
        path: x if path.split("/")[0] in shared else x[index]
        for path, x in arrays.items()
    }


def assert_close(
    found: np.ndarray, wanted: np.ndarray, tolerance: float, path: str
) -> None:
    """Check arrays of a state; those of the losses of before are of float32."""
    if path.startswith("loss_stats/"):
        tolerance = max(tolerance, 1e-6)
    np.testing.assert_allclose(
        found, wanted, rtol=tolerance, atol=tolerance, err_msg=path
    )


def assert_members_are_alone(
    settings: dict[str, Any], *indices: int, own_data: bool = False
) -> None:
    """Check members against runs of their seeds.

    Args:
      settings: Settings of the config, by section.
      indices: Numbers of the members.
      own_data: Whether they see the images of these runs, too.
    """
    ensemble = config_of(settings, NUM)
    if own_data:
        train = dataclasses.replace(ensemble.train, ensemble_data="own")
        ensemble = dataclasses.replace(ensemble, train=train)
    together, losses = take_steps(ensemble), []
    for index in indices:
        config = config_of(settings, 1)
        if own_data:
            config = dataclasses.replace(config, seed=index)
        alone = take_steps(config, seed=index)
        wanted, found = by_path(alone.states[-1]), member(together, index)
        assert wanted.keys() == found.keys()
        half = settings.get("precision") == "fp16"
        for path, x in wanted.items():
            # In float64 sums in another order differ by 1e-16; in float16 by 1e-3.
            tolerance = 1e-2 if half else TOLERANCE
            assert_close(found[path], x, tolerance, path)
        losses.append(alone.metrics["loss"])
    if len(indices) == NUM and settings.get("precision") != "fp16":
        mean, spread = np.mean(losses, 0), np.ptp(losses, 0)
        np.testing.assert_allclose(together.metrics["loss"], mean, rtol=TOLERANCE)
        np.testing.assert_allclose(
            together.metrics["loss_spread"], spread, rtol=TOLERANCE
        )
        assert spread.min() > 0


def test_a_member_is_the_run_of_its_seed():
    assert_members_are_alone(TABLE["adam, clipped"], 1)


@pytest.mark.parametrize("name", thinned(5, TABLE))
def test_with_an_option_a_member_is_the_run_of_its_seed(name: str):
    assert_members_are_alone(TABLE[name], *range(NUM))


@pytest.mark.parametrize("name", thinned(2, ["plain", "micro-batches", "ema", "sam"]))
def test_where_members_share_kernels_they_are_the_runs_of_their_seeds(name: str):
    """As GPUs and TPUs compute them: by a `vmap`, and several steps by a scan."""
    with mock.patch.object(Layout, "platform", property(lambda layout: "tpu")):
        assert_members_are_alone(TABLE[name], *range(NUM))


# What makes the images of runs of other seeds others, beside their order.
PADDED = {"augment": AugmentConfig(crop_padding=1)}
OWN_DATA: dict[str, dict[str, Any]] = {
    "augmented": {"data": PADDED},
    "mixed, in micro-batches": {
        "train": {"accumulate_steps": 2},
        "data": {"augment": AugmentConfig(mixup=0.4)},
    },
    "augmented, in micro-batches": {
        "train": {"accumulate_steps": 2, "steps_per_call": 2},
        "data": PADDED,
    },
    "streamed": {"data": {"cache": "stream", "repeats": 2, **PADDED}},
    "balanced": {"data": {"sampling": "balanced", **PADDED}},
}


@pytest.mark.parametrize(
    "name",
    thinned(
        3,
        [
            pytest.param(name, marks=[pytest.mark.slow] * bool(index))
            for index, name in enumerate(OWN_DATA)
        ],
    ),
)
def test_with_its_own_images_a_member_is_the_whole_run_of_its_seed(name: str):
    assert_members_are_alone(OWN_DATA[name], *range(NUM), own_data=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["augmented", "augmented, in micro-batches"])
def test_where_members_share_kernels_they_have_their_own_images(name: str):
    with mock.patch.object(Layout, "platform", property(lambda layout: "tpu")):
        assert_members_are_alone(OWN_DATA[name], *range(NUM), own_data=True)


@pytest.mark.slow
def test_on_any_devices_members_have_their_own_images():
    groups = [{"meshes": [{"members": 2, "data": 2}, {"data": 4}]}]
    train = {"ensemble": NUM, "ensemble_data": "own"}
    augment = AugmentConfig(crop_padding=2)
    assert_same_with(train, groups=groups, augment=augment)


@pytest.mark.slow
def test_on_any_devices_an_ensemble_computes_what_it_does_on_one():
    assert_same_with({"ensemble": NUM})


# Factors of powers of two, which round nothing.
RATES, DECAYS = (0.5, 2.0), (4.0, 0.0)
OWN_NUMBERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": {"momentum": 0.9, "nesterov": True, "clip_norm": 0.1}},
    **{
        name: {"optimizer": {"name": name, "learning_rate": 0.01}}
        for name in ("sgdw", "adamw", "lion", "lamb", "lars", "muon", "adan")
    },
    "schedule-free": {"optimizer": {"name": "schedule_free_adamw"}},
    "warm-up": {"optimizer": {"schedule": "cosine", "warmup_steps": 2}},
    "frozen": {"train": {"freeze": ("stem*",)}},
    "ema, micro-batches": {"train": {"ema_decay": 0.9, "accumulate_steps": 2}},
}


def assert_members_have_their_numbers(settings: dict[str, Any]) -> None:
    """Check members that differ in rates and decays against runs of these."""
    train, optimizer = (settings.get(name, {}) for name in ("train", "optimizer"))
    optimizer = {"learning_rate": 0.1, **optimizer, "weight_decay": 0.25}
    many = {**optimizer, "member_rates": RATES, "member_decays": DECAYS}
    same = {"train": {**train, "ensemble_seeds": "same"}, "optimizer": many}
    together, losses = take_steps(config_of({**settings, **same}, NUM)), []
    rates: Any = None
    for index, (rate, decay) in enumerate(zip(RATES, DECAYS, strict=True)):
        own = {
            "learning_rate": rate * optimizer["learning_rate"],
            "weight_decay": decay * optimizer["weight_decay"],
        }
        one = {**settings, "optimizer": {**optimizer, **own}}
        alone = take_steps(config_of(one, 1))
        wanted, found = by_path(alone.states[-1]), member(together, index)
        assert wanted.keys() == found.keys()
        for path, x in wanted.items():
            # LARS has the rate in its momentum, and an ensemble behind it.
            if optimizer.get("name") != "lars" or not path.startswith("opt_state"):
                assert_close(found[path], x, TOLERANCE, path)
        losses.append(alone.metrics["loss"])
        # The last has the largest.
        rates = alone.metrics["learning_rate"]
    # The first step sees the same weights, the later ones others.
    np.testing.assert_allclose(losses[0][0], losses[1][0], rtol=TOLERANCE)
    assert abs(losses[0][-1] - losses[1][-1]) > 1e-6
    np.testing.assert_allclose(together.metrics["learning_rate"], rates, rtol=1e-6)


def test_members_of_one_seed_are_the_runs_of_their_own_numbers():
    assert_members_have_their_numbers(OWN_NUMBERS["sgd"])


@pytest.mark.parametrize("name", thinned(4, OWN_NUMBERS))
def test_with_an_optimizer_members_are_the_runs_of_their_own_numbers(name: str):
    assert_members_have_their_numbers(OWN_NUMBERS[name])


@pytest.mark.slow
def test_where_members_share_kernels_they_have_their_own_numbers():
    with mock.patch.object(Layout, "platform", property(lambda layout: "tpu")):
        assert_members_have_their_numbers(OWN_NUMBERS["adamw"])


@pytest.mark.slow
def test_layers_that_begin_later_have_the_rates_of_their_members():
    """Of seeds in a row, beside runs of these."""
    train = {"fine_tune": True, "freeze_epochs": 1.0}
    many = {"train": train, "optimizer": {"member_rates": RATES}}
    together = take_steps(config_of(many, NUM))
    for index, rate in enumerate(RATES):
        one = {"train": train, "optimizer": {"learning_rate": 0.1 * rate}}
        alone = take_steps(config_of(one, 1), seed=index)
        for path, x in by_path(alone.states[-1]).items():
            assert_close(member(together, index)[path], x, TOLERANCE, path)


@pytest.mark.slow
def test_on_any_devices_members_have_their_own_numbers():
    own = {"member_rates": RATES, "member_decays": DECAYS, "weight_decay": 0.25}
    groups = [{"meshes": [{"members": 2, "fsdp": 2}, {"data": 4}]}]
    assert_same_with({"ensemble": NUM}, groups=groups, optimizer=own)


@pytest.mark.parametrize(
    ("train", "optimizer", "told"),
    [
        ({}, {"member_rates": (1.0, 2.0)}, "without train.ensemble"),
        ({"ensemble": 3}, {"member_rates": (1.0, 2.0)}, "a number for each member"),
        ({"ensemble": 2}, {"member_rates": (1.0, 0.0)}, "expected values above 0"),
        ({"ensemble": 2}, {"member_decays": (1.0, 2.0)}, "optimizer.weight_decay"),
        ({"ensemble": 2, "ensemble_seeds": "same"}, {}, "would be the same model"),
        ({"ensemble_data": "own"}, {}, "has no effect without train.ensemble"),
        (
            {"ensemble": 2, "ensemble_seeds": "same", "ensemble_data": "own"},
            {"member_rates": (1.0, 2.0)},
            "runs of one seed see the same images",
        ),
    ],
)
def test_numbers_of_members_that_do_not_fit_are_refused(
    train: dict[str, Any], optimizer: dict[str, Any], told: str
):
    settings = {"train": train, "optimizer": optimizer, "precision": "fp32"}
    with pytest.raises(UserError, match=told):
        build_setup(config_of(settings, 1))


@pytest.mark.slow
def test_devices_that_share_the_members_compute_what_one_does():
    batch = {"members": 2, "data": 2, "fsdp": 2}
    pixels = {"members": 2, "spatial": 2, "spatial_width": 2}
    groups = [
        {"meshes": [{"members": 2}, batch]},
        {"meshes": [batch], "micro": 2, "copies": True},
        {"meshes": [pixels], "remat": "full"},
    ]
    assert_same_with({"ensemble": NUM}, groups=groups)
    assert_same_with({"ensemble": 2 * NUM}, groups=[{"meshes": [{"members": 2}]}])


def splits_members(name: str) -> None:
    """Take the steps of an ensemble whose members two devices share, and of one."""
    alone = config_of(TABLE[name], NUM)
    parallel = dataclasses.replace(alone.parallel, members=2, cpu_devices=2)
    found = take_steps(dataclasses.replace(alone, parallel=parallel))
    # Adam divides the gradient of a bias in front of a norm, rounding of 1e-17, by its
    # epsilon of 1e-8; float16 rounds to 1e-3.
    tolerance = 1e-2 if alone.precision == "fp16" else 1e-8
    arrays = by_path(found.states[-1])
    for path, x in by_path(take_steps(alone).states[-1]).items():
        assert_close(arrays[path], x, tolerance, path)


@pytest.mark.slow
def test_with_any_option_devices_share_the_members():
    for name in TABLE:
        with_devices(2, splits_members, name)


def collectives_of(settings: dict[str, Any]) -> tuple[list[int], int]:
    """Return the bytes of each exchange of a step, and of a device's parameters."""
    setup = build_setup(config_of({"parallel": settings, "precision": "fp32"}, NUM))
    text = compile_step(setup).as_text() or ""
    params = setup.abstract_state.params
    return [c.bytes for c in read_program(text).collectives], bytes_per_device(params)


def test_devices_that_share_the_members_exchange_no_gradients():
    cases = [{"members": 2, "cpu_devices": 2}, {"data": 2, "cpu_devices": 2}]
    (apart, half), (batch, whole) = (
        with_devices(2, collectives_of, case) for case in cases
    )
    assert half == whole / 2
    # Losses, norms and counts of the step, to tell their means.
    assert max(apart) <= 64
    assert max(batch) >= whole / 4


@pytest.mark.parametrize(
    ("settings", "members", "told"),
    [
        (
            {"members": 2},
            3,
            r"parallel\.members = 2 does not divide train\.ensemble = 3",
        ),
        (
            {"members": 2},
            1,
            r"parallel\.members = 2 does not divide train\.ensemble = 1",
        ),
        ({"members": 2, "model": 2}, 2, r"parallel\.model = 2 with parallel\.members"),
    ],
)
def test_members_that_devices_cannot_share_are_refused(
    settings: dict[str, int], members: int, told: str
):
    config = config_of({"parallel": settings, "precision": "fp32"}, members)
    devices = [jax.devices()[0]] * math.prod(settings.values())
    with pytest.raises(UserError, match=told):
        build_setup(config, devices=devices)


def test_a_bad_step_of_a_member_leaves_the_others_alone():
    state = {"weight": jnp.array([1.0, 2.0])}
    whole = TrainState(
        step=jnp.int32(3),
        params=state,
        model_state={},
        opt_state={},
        ema_params={},
        loss_scale={},
        bad_steps={n: jnp.zeros(NUM, jnp.int32) for n in ("in_a_row", "total")},
    )

    def one_step(
        state: TrainState, factor: Any, numbers: Any
    ) -> tuple[TrainState, Any]:
        loss = state.params["weight"] * factor * numbers["half"]
        good = jnp.isfinite(loss)
        params = {"weight": jnp.where(good, loss, state.params["weight"])}
        counts = jax.tree.map(lambda x: x + 1 - good, state.bad_steps)
        metrics = {"loss": loss, "skipped": 1 - good.astype(int)}
        new = dataclasses.replace(
            state, step=state.step + 1, params=params, bad_steps=counts
        )
        return new, {**metrics, "bad_steps": counts["in_a_row"]}

    factors, numbers = jnp.array([6.0, jnp.nan]), {"half": np.array([0.5, 0.5])}
    after, metrics = step_members(one_step, whole, factors, numbers, (), "cpu")
    assert after.params["weight"].tolist() == [3, 2]
    assert (int(after.step), after.skipped_steps) == (4, 1)
    told = {name: float(x) for name, x in metrics.items()}
    wanted = {"loss": 3, "skipped": 0, "bad_steps": 1, "members_skipped": 1}
    assert told == {**wanted, "loss_spread": 0}


@pytest.mark.slow
def test_a_member_of_bad_weights_is_skipped_alone():
    with float64(enable=True):
        setup = build_setup(config_of({}, NUM))
        programs = make_programs(setup)
        roots = keys.member_keys(0, NUM)
        params, model_state = programs.weights(roots)
        params["stem"]["kernel"] = params["stem"]["kernel"].at[1].set(jnp.nan)
        state = programs.begin((params, model_state))
        before = jax.device_get(state.params)
        data, order = setup.config.data, programs.order
        batches = loader.train_batches(
            data, programs.train_set, setup.mesh, order, 0, 1
        )
        _, batch = next(loader.feed(batches, iter([1]), setup.mesh, data.batch_size))
        train = programs.train_at(0)
        state, metrics = train(state, roots, programs.train_set.on_device, batch)
    assert state.bad_steps["total"].tolist() == [0, 1]
    assert float(metrics["members_skipped"][0]) == 1
    assert float(metrics["skipped"][0]) == 0 and np.isfinite(metrics["loss"][0])
    old, new = by_path(before), by_path(state.params)
    for path, x in new.items():
        np.testing.assert_array_equal(x[1], old[path][1])
    assert not np.array_equal(new["stem/kernel"][0], old["stem/kernel"][0])


def test_what_has_no_mean_is_refused():
    data = data_of("embedding")
    config = layered({"ensemble": 2}, data=data, task="embedding", precision="fp32")
    with pytest.raises(UserError, match=r"train\.ensemble = 2 .* its own space"):
        build_setup(config)
    told = tasks.kind("regression").refuses_mean({"loss": "gaussian"})
    assert told is not None and "mixture" in told
    assert tasks.kind("regression").refuses_mean({"loss": "huber"}) is None
    assert tasks.kind("detection").refuses_mean({}) is not None
    own_task = tasks.kind("path/to/file.py:Own").refuses_mean({})
    assert own_task is not None and "not said" in own_task
