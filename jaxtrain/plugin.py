"""Plug-ins: what each brings, and the tables of names that they fill.

A plug-in is a folder whose `__init__.py` holds `PLUGIN`. Ours are those that
`jaxtrain.plugins.NAMES` lists; those of other packages come by the entry point group
`jaxtrain.plugins`. Nothing of a plug-in but its `PLUGIN` is imported before one of its
names is used.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jaxtrain import invocation
from jaxtrain.console import tell
from jaxtrain.errors import UserError

GROUP = "jaxtrain.plugins"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A capability outside the core.

    Attributes:
      name: Name of the folder, or of the entry point.
      requires: Names of plug-ins of ours that this one imports.
      subject: Heading of its commands in the help.
      predictions: Name -> "module:Class" of a `PredictionPart`, with options of
        `predict` (see `jaxtrain.inference.parts`).
      callbacks: Name -> "module:function" of the config and whether `--profile` is
        given, which makes a `Callback` of a run, or None (see
        `jaxtrain.trainer.callback`).
      executions: Way to lay a model out on the devices -> "module:Class" of an
        `Execution` (see `jaxtrain.trainer.execution`).
      writers: Metric writer -> "module:Class" of a `ConfiguredWriter` (see
        `jaxtrain.records.writers`).
      commands: Command -> its module (see `jaxtrain.commands`).
      classifiers: Model with one row of outputs an image, which may be a backbone ->
        "module:Class" of a `jaxtrain.models.base.Model`.
      models: Other model -> likewise.
      model_changes: Field of the section `model` -> "module:function" that changes a
        built model as the field says (see `jaxtrain.models.blueprint.MODEL_CHANGES`).
      weights: Model -> "module:NAME" of the models of other libraries that compute the
        same, a tuple of `jaxtrain.models.weights.sources.WeightsSource`.
      convolutions: "cpu" -> "module:function" that gives a model other convolutions
        (see `jaxtrain.models.CONVOLUTIONS`).
      sources: Form of `data.source`, such as csv:FILE -> "module:function" that opens
        a set (see `jaxtrain.data.stores.OpenStore`).
      inputs: Kind of inputs, and field of `data` and of a model's description ->
        "module:Class" of an `InputKind` (see `jaxtrain.data.input_kind`).
      index_files: Name of a file that marks the folder of a set -> kind of the source
        that reads it.
      layouts: Kind of a source -> "module:Class" of a
        `jaxtrain.data.layouts.FolderLayout` that it reads.
      target_images: Kind of targets that are images -> "module:Class" of a
        `jaxtrain.data.target_images.TargetImages`.
      tasks: Task -> "module:Class" of a `jaxtrain.tasks.base.Task`.
      report_sections: Task -> "module:function" of metrics, and of the names of classes
        or columns, which returns its sections of a report as HTML.
      methods: Method -> "module:Class" of a `jaxtrain.training.methods.base.Method`.
      weights_options: Options of methods that name trained weights, as
        `model.pretrained` does.
      optimizers: Optimizer -> "module:name" of a `jaxtrain.registry.Row`, or of a
        function as `optimizer.name` takes it, with `optimizer.options`.
      schedules: Schedule of the learning rate -> likewise: a function of its peak, the
        steps of the run and those of the warm-up.
      evaluations: Key of the result of an evaluation -> "module:Class" of an
        `EvaluationPart` (see `jaxtrain.evaluation.parts`).
      sections: Section of the config -> "module:Class" of a
        `jaxtrain.config.base.Section`. The module is imported while the config is: it
        imports modules such as `jaxtrain.config.base`, and not `jaxtrain.config`.
      transforms: Transform of the step -> "module:function" that returns the
        `StepTransform` a run asks for, or None (see `jaxtrain.trainer.transforms`).
      exporters: Format -> "module:Class" of an `Exporter` (see `jaxtrain.export`).
      next_commands: Name -> "module:function" that returns a command to suggest after a
        run (see `jaxtrain.trainer.next_commands`).
      hints: Occasion -> advice for a message of the core, with the names of the
        program and of what the message knows in braces (see `hints_on`).
    """

    name: str
    requires: tuple[str, ...] = ()
    subject: str = "other packages"
    predictions: Mapping[str, str] = field(default_factory=dict)
    callbacks: Mapping[str, str] = field(default_factory=dict)
    executions: Mapping[str, str] = field(default_factory=dict)
    writers: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    classifiers: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    model_changes: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    convolutions: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    index_files: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    target_images: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    report_sections: Mapping[str, str] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    weights_options: tuple[str, ...] = ()
    optimizers: Mapping[str, str] = field(default_factory=dict)
    schedules: Mapping[str, str] = field(default_factory=dict)
    evaluations: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, str] = field(default_factory=dict)
    exporters: Mapping[str, str] = field(default_factory=dict)
    next_commands: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)


class Table(Mapping[str, T]):
    """Rows by name, of the core and of plug-ins, imported when they are read.

    Iterating gives the names, those of the core first, and imports no row.
    """

    def __init__(self, kinds: str | tuple[str, ...], core: Mapping[str, str]) -> None:
        """Make a table.

        Args:
          kinds: Attributes of `Plugin` whose rows belong here.
          core: Name -> "module", or "module:name", of each row of the core.
        """
        self.kinds = (kinds,) if isinstance(kinds, str) else kinds
        self.core = core

    @functools.cached_property
    def references(self) -> dict[str, str]:
        """Name -> "module" or "module:name" of each row.

        Raises:
          UserError: Two plug-ins, or a plug-in and the core, bring one name.
        """
        rows, owners = dict(self.core), dict.fromkeys(self.core, "the core")
        for plugin in installed():
            for name, reference in self._rows_of(plugin).items():
                if name in rows:
                    raise UserError(
                        f"{self.kinds[-1]}: {name!r} is brought by {owners[name]} and "
                        f"by the plug-in {plugin.name!r}: uninstall one of them"
                    )
                rows[name], owners[name] = reference, f"the plug-in {plugin.name!r}"
        return rows

    def __getitem__(self, name: str) -> T:
        """Import the row of a name.

        Raises:
          UserError: A library that the row of a plug-in needs is missing.
        """
        reference = self.references[name]
        try:
            return resolve(reference)
        except ImportError as error:
            if name in self.core:
                raise
            raise self._refusal(name, f"{type(error).__name__}: {error}") from error

    def check(self) -> None:
        """Check the rows of plug-ins that are imported late, without importing them.

        Raises:
          UserError: Two rows have one name, or the module of a row is not there.
        """
        for name in self.references.keys() - self.core.keys():
            module = self.references[name].partition(":")[0]
            try:
                found = importlib.util.find_spec(module)
            except ImportError:
                found = None
            if found is None:
                raise self._refusal(name, f"no module {module}")

    def _refusal(self, name: str, reason: str) -> UserError:
        owner = next(p.name for p, names in self.brought() if name in names)
        return UserError(
            f"{self.kinds[-1]}: {name!r} of the plug-in {owner!r} cannot be imported "
            f"({reason}): install what it needs, or uninstall the plug-in"
        )

    def brought(self) -> list[tuple[Plugin, list[str]]]:
        """Return the names that each plug-in brings, without those that bring none."""
        found = [(plugin, [*self._rows_of(plugin)]) for plugin in installed()]
        return [(plugin, names) for plugin, names in found if names]

    def _rows_of(self, plugin: Plugin) -> dict[str, str]:
        rows: dict[str, str] = {}
        for kind in self.kinds:
            rows |= getattr(plugin, kind)
        return rows

    def core_rows(self) -> list[T]:
        """Import and return the rows of the core."""
        return [resolve(reference) for reference in self.core.values()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.references)

    def __len__(self) -> int:
        return len(self.references)

    def __contains__(self, name: object) -> bool:
        return name in self.references


def hints_on(occasion: str, *, before: str = "; ", **known: object) -> str:
    """Return the hints of plug-ins on an occasion; "" without any.

    Args:
      occasion: Key of `Plugin.hints`.
      before: Text before each hint.
      **known: What a hint may name in braces, beside {program}: the program, as the
        user called it.
    """
    texts = [p.hints[occasion] for p in installed() if occasion in p.hints]
    known = {"program": invocation.program(), **known}
    return "".join(before + text.format(**known) for text in texts)


def resolve(reference: str) -> Any:
    """Import "module", or the object that "module:name" refers to.

    Raises:
      ImportError: There is no such module, or it has no such name.
    """
    module, _, name = reference.partition(":")
    found = importlib.import_module(module)
    if not name:
        return found
    if not hasattr(found, name):
        raise ImportError(f"{module} has no {name}")
    return getattr(found, name)


@functools.cache
def installed() -> tuple[Plugin, ...]:
    """Return the plug-ins of this package and of others.

    One of another package that cannot be imported is named once, and left out.

    Raises:
      UserError: Two have one name, or one requires another that is not there.
    """
    plugins = _ours() + _of_entry_points()
    names = [plugin.name for plugin in plugins]
    for plugin in plugins:
        if names.count(plugin.name) > 1:
            raise UserError(
                f"two plug-ins are called {plugin.name!r}: uninstall one of them"
            )
        if missing := [name for name in plugin.requires if name not in names]:
            raise UserError(
                f"the plug-in {plugin.name!r} requires {', '.join(missing)}, which is "
                "not installed"
            )
    return tuple(plugins)


def _ours() -> list[Plugin]:
    if importlib.util.find_spec(GROUP) is None:
        return []
    names = getattr(importlib.import_module(GROUP), "NAMES", ())
    return [resolve(f"{GROUP}.{name}:PLUGIN") for name in names]


def _of_entry_points() -> list[Plugin]:
    plugins = []
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            plugin = point.load()
        except Exception as error:
            what = f"importing {point.value} failed: {type(error).__name__}: {error}"
        else:
            if isinstance(plugin, Plugin):
                plugins.append(plugin)
                continue
            what = f"{point.value} is {plugin!r}, which is no jaxtrain.plugin.Plugin"
        tell(f"warning: the plug-in {point.name!r} is left out: {what}")
    return plugins
