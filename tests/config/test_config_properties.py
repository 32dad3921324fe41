"""Whatever is written into a config: it holds and can be read back, or is refused."""

import dataclasses
import functools
import json
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jaxtrain import config as config_lib
from jaxtrain.config import (
    ONE_OF,
    AdamWConfig,
    ClassificationConfig,
    Config,
    CustomConfig,
    Part,
    ResNetConfig,
    SamConfig,
    StepSchedule,
)
from jaxtrain.errors import UserError
from jaxtrain.trainer.periods import make_timetable
from jaxtrain.trainer.timetable import Timetable
from tests.helpers.rows import each_row

LENGTH, EVALUATIONS = ONE_OF["length"], ONE_OF["evaluations"]
CHECKPOINTS = ONE_OF["checkpoints"]


def examples(number: int) -> settings:
    """Take the same examples every time, however busy the machine is."""
    return settings(
        max_examples=number,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


# The parts whose options are tried.
PARTS: dict[str, type[Part]] = {
    "task": ClassificationConfig,
    "method": SamConfig,
    "model": ResNetConfig,
    "optimizer": AdamWConfig,
    "schedule": StepSchedule,
}


def hints_of(section: type) -> dict[str, Any]:
    """Return the type of every field that a section takes, with those of its parts."""
    found = get_type_hints(section)
    names = [field.name for field in dataclasses.fields(section) if field.init]
    parts = [
        n for n in names if isinstance(x := found[n], type) and issubclass(x, Part)
    ]
    return {n: PARTS[n] if n in parts else found[n] for n in names}


def hints(section: type = Config, prefix: str = "") -> dict[str, Any]:
    """Return the type of every field by its path."""
    found = {}
    for name, hint in hints_of(section).items():
        if dataclasses.is_dataclass(hint):
            found |= hints(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            found[f"{prefix}{name}"] = hint
    return found


HINTS = hints()
# Every one of them has broken something: a comparison, a clock, JSON, repr.
EXTREME = [2**31, 2**53 + 1, 2**63, -(2**31), 10**400, 10**5000, -(10**5000)]
EXTREME += [1e30, -1e30, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(EXTREME),
)
ANYTHING = st.one_of(SCALARS, st.lists(SCALARS, max_size=3).map(tuple))
NUMBERS = st.one_of(
    st.integers(1, 100), st.integers(0, 9), st.floats(0, 4), st.sampled_from(EXTREME)
)


@functools.cache
def sensible(path: str) -> st.SearchStrategy[Any]:
    """Values of the right type, most of them in range."""
    in_range = {
        int: st.integers(0, 64),
        float: st.floats(0, 1),
        tuple[float, ...]: st.lists(st.floats(0, 1), max_size=3).map(tuple),
        str: st.sampled_from(["digits", "tfds:mnist", "sgd"]),
    }
    kinds = [kind for kind in in_range if kind in (HINTS[path], *_members(path))]
    return st.one_of(st.from_type(HINTS[path]), *(in_range[kind] for kind in kinds))


def _members(path: str) -> tuple[Any, ...]:
    return getattr(HINTS[path], "__args__", ())


def build(values: dict[str, Any], section: type = Config, prefix: str = "") -> Any:
    """Make a config of the values at these paths, one epoch long if none says."""
    if section is Config and not values.keys() & set(LENGTH):
        values = {**values, "train.epochs": 1}
    fields = {}
    for name, hint in hints_of(section).items():
        path = f"{prefix}{name}"
        if dataclasses.is_dataclass(hint):
            fields[name] = build(values, hint, f"{path}.")  # type: ignore[arg-type]
        elif path in values:
            fields[name] = values[path]
    return section(**fields)


def check(values: dict[str, Any]) -> None:
    """Any other exception fails the test."""
    try:
        config = build(values)
    except UserError:
        return
    text = config_lib.to_json(config)
    json.loads(text, parse_constant=pytest.fail)  # NaN and Infinity are no JSON.
    assert repr(config_lib.from_json(text)) == repr(config)


def is_number(hint: Any) -> bool:
    kinds = {hint, *getattr(hint, "__args__", ())}
    return bool(kinds & {int, float, tuple[float, ...]}) and bool not in kinds


@pytest.mark.slow
@each_row("path", [path for path in HINTS if is_number(HINTS[path])])
def test_true_and_what_is_not_finite_are_no_numbers(path: str):
    name = path.split(".")[-1]
    for value in (True, False, float("inf"), float("-inf"), float("nan"), 10**400):
        for item in (value, (0.5, value)):
            with pytest.raises(UserError, match=rf"^{name} = .*: expected"):
                build({path: item})


@pytest.mark.slow
@each_row("path", HINTS)
def test_any_value_of_a_field_holds_or_is_refused(path: str):
    @examples(6)
    @given(value=st.one_of(ANYTHING, sensible(path)))
    def holds(value: Any) -> None:
        check({path: value})

    holds()


@examples(100)
@given(data=st.data())
def test_any_values_of_several_fields_hold_or_are_refused(data: st.DataObject):
    paths = data.draw(st.lists(st.sampled_from(list(HINTS)), unique=True, max_size=6))
    check({path: data.draw(sensible(path)) for path in paths})


@each_row("options", [{"a": -(2**63)}, {"a": -(2**31)}, {"": 1}])
def test_options_that_cannot_be_read_back_are_refused(options: dict[str, Any]):
    with pytest.raises(UserError, match=r"^options = .*: expected"):
        CustomConfig(name="my.py:Task", options=options)


def one_of(group: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(group), NUMBERS, max_size=1)


@examples(200)
@given(
    length=one_of(LENGTH),
    evaluations=one_of(EVALUATIONS),
    checkpoints=one_of(CHECKPOINTS),
    warmup=one_of(ONE_OF["warm-up"]),
    others=st.fixed_dictionaries(
        {"data.batch_size": st.integers(1, 40)},
        optional={
            "train.steps_per_call": NUMBERS,
            "train.stop_after_steps": NUMBERS,
            "logging.every_steps": NUMBERS,
        },
    ),
    num_examples=st.one_of(st.integers(1, 200), st.integers(1, 10**9)),
    has_validation=st.booleans(),
)
def test_any_length_and_periods_make_a_plan_or_are_refused(
    length, evaluations, checkpoints, warmup, others, num_examples, has_validation
):
    values = {**length, **evaluations, **checkpoints, **warmup, **others}
    try:
        config = build(values)
        timetable = make_timetable(config, num_examples, has_validation=has_validation)
    except UserError:
        return
    assert 0 < timetable.total_steps <= config_lib.MAX_COUNT
    assert 0 < timetable.stop_after_steps <= timetable.total_steps
    assert timetable.warmup_steps >= 0
    if timetable.total_steps < 1000:
        check_calls(timetable, config.train.steps_per_call)


def check_calls(timetable: Timetable, steps_per_call: int) -> None:
    """All steps are taken, some by a whole call, and nothing is due within one."""
    sizes = list(timetable.call_sizes(0, steps_per_call))
    assert sum(sizes) == timetable.total_steps and steps_per_call in sizes
    start = 0
    for size in sizes:
        assert start + size <= timetable.next_boundary(start)
        start += size


@examples(60)
@given(
    periods=st.lists(st.integers(1, 40), min_size=4, max_size=4),
    steps_per_call=st.integers(1, 60),
)
def test_steps_per_call_is_refused_if_no_call_has_them(
    periods: list[int], steps_per_call: int
):
    """Whether one has is counted here over all calls of the run."""
    paths = ("train.steps", "train.eval_every_steps", "checkpoint.every_steps")
    values: dict[str, Any] = dict(zip(paths, periods, strict=False))
    values["logging.every_steps"] = periods[3]
    timetable = make_timetable(build(values), 1000, has_validation=True)
    sizes = {n: set(timetable.call_sizes(0, n)) for n in range(1, 61)}
    works = [n for n in sizes if n in sizes[n]]
    config = build({**values, "train.steps_per_call": steps_per_call})
    if steps_per_call in works:
        make_timetable(config, 1000, has_validation=True)
    else:
        binding = [path for path, steps in values.items() if steps == max(works)]
        with pytest.raises(UserError, match=f"at most {max(works)},") as error:
            make_timetable(config, 1000, has_validation=True)
        assert all(path in str(error.value) for path in binding)
