"""Plug-ins: tables of names that they fill, and mistakes of theirs."""

import dataclasses
import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtrain import plugin
from jaxtrain.cli import main
from jaxtrain.commands import COMMANDS
from jaxtrain.config import (
    Config,
    CustomOptimizerConfig,
    CustomSchedule,
    OptimizerConfig,
    ScheduleConfig,
)
from jaxtrain.config.metadata import field, with_metadata
from jaxtrain.data import SOURCES
from jaxtrain.errors import UserError
from jaxtrain.export.exporter import EXPORTERS
from jaxtrain.inference import PREDICTIONS
from jaxtrain.models import MODELS
from jaxtrain.plugin import Plugin, Table
from jaxtrain.records.writers import WRITERS
from jaxtrain.registry import Row
from jaxtrain.tasks import TASKS
from jaxtrain.tools.evaluation import PARTS
from jaxtrain.trainer.callback import CALLBACKS
from jaxtrain.trainer.execution import EXECUTIONS
from jaxtrain.trainer.next_commands import NEXT_COMMANDS
from jaxtrain.training import OPTIMIZERS, SCHEDULES
from jaxtrain.training.methods import METHODS
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.schedules import make_schedule
from jaxtrain.zoo import listing
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines

# Tables by the kind of rows that plug-ins bring.
TABLES: dict[str, Table[Any]] = {
    table.kinds[-1]: table
    for table in (
        *(CALLBACKS, COMMANDS, EXPORTERS, METHODS, MODELS, NEXT_COMMANDS),
        *(OPTIMIZERS, PARTS, PREDICTIONS, SCHEDULES, SOURCES, TASKS, WRITERS),
    )
}
# What asks a command for a row of each.
DIGITS = "--config {digits}"
ASKING = {
    "callbacks": DIGITS,
    "commands": "x",
    "evaluations": "evaluate --workdir {folder}",
    "exporters": "export --workdir {folder} --format x --out {folder}",
    "methods": f"{DIGITS} --method x",
    "models": f"{DIGITS} --model.name x",
    "next_commands": DIGITS,
    "optimizers": f"{DIGITS} --optimizer.name x",
    "predictions": "predict --workdir {folder} x.png",
    "schedules": f"{DIGITS} --optimizer.schedule x",
    "sources": f"{DIGITS} --data.source x",
    "tasks": f"{DIGITS} --task x",
    "writers": DIGITS,
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Read the plug-ins anew, and forget them afterwards."""
    forget()
    yield
    forget()


def forget() -> None:
    plugin.installed.cache_clear()
    for table in TABLES.values():
        vars(table).pop("references", None)


def install(monkeypatch: pytest.MonkeyPatch, **plugins: object) -> None:
    """Let entry points bring plug-ins; None stands for a module that is not there."""
    module = ModuleType("others_plugins")
    points = []
    for name, given in plugins.items():
        setattr(module, name, given)
        place = "missing_module" if given is None else "others_plugins"
        points.append(EntryPoint(name, f"{place}:{name}", plugin.GROUP))
    monkeypatch.setitem(sys.modules, "others_plugins", module)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: points)


def test_rows_of_other_packages_join_the_core_and_are_imported_when_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
):
    theirs = {"theirs": "math:pi", "broken": "no_such_module:Name"}
    install(monkeypatch, other=Plugin(name="other", exporters=theirs))
    table: Table[float] = Table("exporters", {"ours": "math:e"})
    assert next(iter(table)) == "ours" and {"theirs", "broken"} < {*table}
    assert table["theirs"] == pytest.approx(3.14159265)
    with pytest.raises(UserError, match="'broken' of the plug-in 'other' cannot be"):
        table["broken"]


@dataclass(frozen=True, kw_only=True)
class FlatConfig(OptimizerConfig):
    """Options of the optimizer of a plug-in."""

    name: str = field("flat", init=False)
    sign: float = field(1.0, help="Factor of each step.")


@dataclass(frozen=True, kw_only=True)
class RisingSchedule(ScheduleConfig):
    """Options of the schedule of a plug-in."""

    name: str = field("rising", init=False)
    end_factor: float = field(1.0, help="First learning rate.")


def optimizer(schedule: Any, weight_decay: float, sign: float = 1.0) -> Any:
    """Add to each weight the learning rate, whatever the gradient."""
    del weight_decay

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        step = sign * schedule(state)
        return jax.tree.map(lambda g: jnp.full_like(g, step), updates), state + 1

    return optax.GradientTransformation(lambda params: jnp.int32(0), update)


def schedule(peak: float, total: int, warmup: int, **options: float) -> Any:
    return lambda step: peak * (step + options.get("end_factor", 1))


FLAT = Row(optimizer, FlatConfig)
UNTYPED = Row(optimizer)
RISING = Row(schedule, RisingSchedule)
BOTH = Plugin(
    name="both",
    optimizers={
        "flat": f"{__name__}:FLAT",
        "untyped": f"{__name__}:UNTYPED",
        "own_flat": f"{__name__}:optimizer",
    },
    schedules={"rising": f"{__name__}:RISING", "own_rising": f"{__name__}:schedule"},
)


@pytest.mark.parametrize(
    ("optimizer", "schedule", "expected"),
    [
        (FlatConfig(), "own_rising", 3.0),
        (FlatConfig(sign=-1.0), RisingSchedule(end_factor=3.0), -7.0),
        (FlatConfig(), CustomSchedule(name="rising", options={"end_factor": 3.0}), 7.0),
        (
            CustomOptimizerConfig(name="own_flat", options={"sign": -1.0}),
            CustomSchedule(name="own_rising", options={"end_factor": 2.0}),
            -5.0,
        ),
        (CustomOptimizerConfig(name="untyped", options={"sign": 2.0}), "rising", 6.0),
    ],
)
def test_optimizers_and_schedules_of_a_plugin_take_options_as_rows_or_functions(
    optimizer: Any, schedule: Any, expected: float, monkeypatch: pytest.MonkeyPatch
):
    install(monkeypatch, both=BOTH)
    config = dataclasses.replace(optimizer, learning_rate=1.0, schedule=schedule)
    rate = make_schedule(config, total_steps=2, warmup_steps=0)
    tx, params = make_optimizer(config, rate), jnp.zeros(2)
    state = tx.init(params)
    for _ in range(2):
        updates, state = tx.update(params, state, params)
        params = optax.apply_updates(params, updates)
    assert np.asarray(params).tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flat", {"b1": 0.9}, "flat takes sign, not 'b1'"),
        ("own_flat", {"b1": 0.9}, "'own_flat' does not accept .* argument 'b1'"),
        ("untyped", {"b1": 0.9}, "'untyped' does not accept .* argument 'b1'"),
        ("flt", {}, "perhaps you meant flat"),
    ],
)
def test_an_optimizer_of_a_plugin_is_refused_what_it_does_not_take(
    name: str, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
):
    install(monkeypatch, both=BOTH)
    custom = CustomOptimizerConfig(name=name, learning_rate=1.0, options=options)
    with pytest.raises(UserError, match=message):
        make_optimizer(Config(optimizer=custom).optimizer, jnp.asarray)


@pytest.mark.slow
def test_a_run_trains_with_an_optimizer_and_a_schedule_of_a_plugin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    install(monkeypatch, both=BOTH)
    words = "--optimizer flat --optimizer.schedule rising"
    words += " --optimizer.schedule.end-factor 2 --optimizer.learning-rate 0.01"
    words += " --optimizer.weight-decay 0"
    words += " --optimizer.warmup-fraction None --train.epochs None --train.steps 2"
    words += " --train.eval-every-epochs None --logging.every-steps 1"
    config = str(ROOT / "configs/digits.py")
    workdir = str(tmp_path / "run")
    assert main(["--config", config, "--workdir", workdir, *words.split()]) == 0
    lines = read_lines(tmp_path / "run")
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert rates == pytest.approx([0.02, 0.03])


def test_help_lists_commands_by_subject_and_those_of_the_core_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    here = "jaxtrain.commands.models"
    one = Plugin(name="one", subject="sailing", commands={"steer": here})
    two = Plugin(name="two", commands={"shout": here})
    three = Plugin(name="three", subject="sailing", commands={"anchor": here})
    install(monkeypatch, one=one, two=two, three=three)
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    first = [line.split("  ")[1] for line in lines if line.startswith("  ")]
    core = [*COMMANDS.core]
    assert first[1 : len(core) + 1] == core
    place = lines.index("sailing:")
    found = [line.split()[0] for line in lines[place : place + 5]]
    assert found == ["sailing:", "steer", "anchor", "other", "shout"]


def test_models_are_listed_under_the_plugin_that_brings_them(
    monkeypatch: pytest.MonkeyPatch,
):
    lenet = MODELS.core["lenet"]
    fleet = Plugin(name="fleet", classifiers={"brig": lenet}, models={"sloop": lenet})
    install(monkeypatch, fleet=fleet)
    lines = [line.split()[0] for line in listing.table().splitlines()]
    assert lines[:2] == ["model", "lenet"]
    assert lines[-3:] == ["fleet:", "brig", "sloop"]


def test_each_hint_is_asked_for_in_the_core_and_has_what_it_names():
    ours = Path(plugin.__file__).parent
    files = [p for p in ours.rglob("*.py") if "plugins" not in p.parts]
    text = "".join(p.read_text(encoding="utf-8") for p in files)
    unusual = with_metadata(Config, "unusual")
    known = {"words": "tfds:mnist", "extra": "pip install"}
    for found in plugin.installed():
        for occasion in found.hints:
            asked = f'"{occasion}"' in text or occasion in unusual
            assert asked, (found.name, occasion)
            assert "{" not in plugin.hints_on(occasion, **known)


def test_hints_follow_each_other_and_name_the_program(monkeypatch: pytest.MonkeyPatch):
    one = Plugin(name="one", hints={"hunger": "{program} cook {dish}"})
    two = Plugin(name="two", hints={"hunger": "order {dish}"})
    install(monkeypatch, one=one, two=two)
    found = plugin.hints_on("hunger", dish="soup")
    assert found == "; python main.py cook soup; order soup"
    assert plugin.hints_on("thirst", dish="soup") == ""


def test_a_plugin_that_cannot_be_imported_is_named_and_the_others_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    good = Plugin(name="good", commands={"shout": "others.command"})
    install(monkeypatch, absent=None, odd="text", good=good)
    names = [p.name for p in plugin.installed()]
    assert "good" in names and "absent" not in names and "odd" not in names
    plugin.installed()
    warned = capsys.readouterr().err.splitlines()
    assert len(warned) == 2
    assert "'absent' is skipped: importing missing_module:absent failed" in warned[0]
    assert "'odd' is skipped: others_plugins:odd is 'text'" in warned[1]


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        (
            {name: Plugin(name=name, exporters={"x": "m:A"}) for name in "ab"},
            "exporters: 'x' is defined by the plug-in 'a' and by the plug-in 'b'",
        ),
        (
            {"a": Plugin(name="a", exporters={"saved": "m:A"})},
            "'saved' is defined by the core and by the plug-in 'a'",
        ),
        ({name: Plugin(name="c") for name in "ab"}, "two plug-ins have the name 'c'"),
        (
            {"b": Plugin(name="b"), "c": Plugin(name="c", requires=("d", "b"))},
            "the plug-in 'c' requires d, which is not installed",
        ),
    ],
)
def test_plugins_that_do_not_go_together_are_refused(
    plugins: dict[str, Plugin], message: str, monkeypatch: pytest.MonkeyPatch
):
    install(monkeypatch, **plugins)
    with pytest.raises(UserError, match=message):
        _ = Table("exporters", {"saved": "math:e"}).references


def test_the_command_line_refuses_them_in_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    install(monkeypatch, a=Plugin(name="c"), b=Plugin(name="c"))
    assert main(["export", "--help"]) == 2
    assert "error: two plug-ins have the name 'c'" in capsys.readouterr().err


def test_pipeline_stages_without_their_plugin_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delitem(EXECUTIONS.references, "stages", raising=False)
    words = ["--config", str(ROOT / "configs/digits.py"), "--workdir", str(tmp_path)]
    assert main([*words, "--parallel.pipeline-stages", "2"]) == 2
    assert capsys.readouterr().err.endswith(
        "error: parallel.pipeline_stages = 2: no installed plug-in "
        "splits a model into stages; set parallel.pipeline_stages to 1\n"
    )


def test_a_plugin_that_cannot_be_imported_is_one_line_of_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    install(monkeypatch, absent=None)
    assert main(["models"]) == 0
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("warning: the plug-in 'absent' is skipped: importing")
    assert "resnet18" in captured.out


def refusal(words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the single message of a command that ends with exit code 2."""
    places = {"digits": str(ROOT / "configs/digits.py"), "folder": str(folder / "x")}
    given = [word.format(**places) for word in words.split()]
    if "--config" in given:
        given += ["--workdir", str(folder / "run")]
    assert main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not any(folder.iterdir())
    return line.removeprefix("error: ")


def test_each_kind_of_rows_has_a_table():
    kinds = {kind for table in TABLES.values() for kind in table.kinds}
    others = {"name", "requires", "subject", "index_files", "hints"}
    # Read by other kinds of names than their own, or when the config is imported.
    others |= {"convolutions", "executions", "inputs", "layouts", "model_changes"}
    others |= {"report_sections", "sections", "target_images", "transforms"}
    others |= {"weights", "weights_options"}
    assert kinds == {field.name for field in dataclasses.fields(Plugin)} - others
    assert ASKING.keys() == TABLES.keys()


@pytest.mark.slow
@each_row("kind", TABLES)
def test_a_name_that_two_plugins_bring_is_refused_before_anything_is_done(
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    rows: dict[str, Any] = {kind: {"x": "math:pi"}}
    forget()
    install(monkeypatch, a=Plugin(name="a", **rows), b=Plugin(name="b", **rows))
    message = "'x' is defined by the plug-in 'a' and by the plug-in 'b'"
    assert f"{kind}: {message}" in refusal(ASKING[kind], tmp_path, capsys)


@pytest.mark.slow
@each_row("kind", TABLES)
def test_a_row_without_its_module_is_refused_before_anything_is_done(
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    rows: dict[str, Any] = {kind: {"x": "no_such_module:A"}}
    forget()
    install(monkeypatch, a=Plugin(name="a", **rows))
    message = f"{kind}: 'x' of the plug-in 'a' cannot be imported"
    found = refusal(ASKING[kind], tmp_path, capsys)
    assert message in found and "no_such_module" in found


def test_help_says_of_a_command_that_it_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    install(monkeypatch, a=Plugin(name="a", commands={"x": "no_such_module"}))
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "x           (commands: 'x' of the plug-in 'a'" in capsys.readouterr().out
