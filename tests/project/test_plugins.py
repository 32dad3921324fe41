"""Plug-ins: tables of names that they fill, and mistakes of theirs."""

import importlib.metadata
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from jaxtrain import plugin
from jaxtrain.cli import main
from jaxtrain.commands import COMMANDS
from jaxtrain.errors import UserError
from jaxtrain.plugin import Plugin, Table
from jaxtrain.run.execution import EXECUTIONS
from tests.helpers.processes import ROOT


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Read the plug-ins anew, and forget them afterwards."""
    forget()
    yield
    forget()


def forget() -> None:
    plugin.installed.cache_clear()
    vars(COMMANDS).pop("references", None)


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
    with pytest.raises(ModuleNotFoundError):
        table["broken"]


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
    assert "'absent' is left out: importing missing_module:absent failed" in warned[0]
    assert "'odd' is left out: others_plugins:odd is 'text'" in warned[1]


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        (
            {name: Plugin(name=name, exporters={"x": "m:A"}) for name in "ab"},
            "exporters: 'x' is brought by the plug-in 'a' and by the plug-in 'b'",
        ),
        (
            {"a": Plugin(name="a", exporters={"saved": "m:A"})},
            "'saved' is brought by the core and by the plug-in 'a'",
        ),
        ({name: Plugin(name="c") for name in "ab"}, "two plug-ins are called 'c'"),
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
    assert "error: two plug-ins are called 'c'" in capsys.readouterr().err


def test_pipeline_stages_without_their_plugin_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delitem(EXECUTIONS.references, "stages", raising=False)
    words = ["--config", str(ROOT / "configs/digits.py"), "--workdir", str(tmp_path)]
    assert main([*words, "--parallel.pipeline-stages", "2"]) == 2
    assert capsys.readouterr().err.endswith(
        "error: parallel.pipeline_stages = 2: no plug-in here cuts a model into "
        "stages; set parallel.pipeline_stages to 1\n"
    )
