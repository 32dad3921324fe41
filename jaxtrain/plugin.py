"""Plug-ins, and the tables of the core that plug-ins extend.

A plug-in is a package whose `__init__.py` defines `PLUGIN`. Built-in plug-ins are
listed in `jaxtrain.plugins.NAMES`; other packages register a plug-in in the entry point
group `jaxtrain.plugins`. The other modules of a plug-in are imported on first use.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jaxtrain import invocation
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError

GROUP = "jaxtrain.plugins"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """Contributions of a plug-in to the tables of the core.

    Attributes:
      name: Name of the plug-in's folder or entry point.
      requires: Names of built-in plug-ins that this plug-in imports.
      subject: Heading of the plug-in's commands in the help.
      predictions: Name -> "module:Class" of a `PredictionPart`, which adds options to
        `predict` (see `jaxtrain.inference.parts`).
      callbacks: Name -> "module:function" that takes the config and whether
        `--profile` is given, and returns a `Callback` for a run, or None (see
        `jaxtrain.trainer.callback`).
      executions: Kind of parallel execution -> "module:Class" of an `Execution` (see
        `jaxtrain.trainer.execution`).
      writers: Metric writer -> "module:Class" of a `ConfiguredWriter` (see
        `jaxtrain.records.writers`).
      commands: Command -> its module (see `jaxtrain.commands`).
      classifiers: Model that has one output vector per image, and can be a backbone ->
        "module:Class" of a `jaxtrain.models.base.Model`.
      models: Other model -> "module:Class" of a `jaxtrain.models.base.Model`.
      model_changes: Field of the section `model` -> "module:function" that transforms a
        built model, given the value of the field (see
        `jaxtrain.models.blueprint.MODEL_CHANGES`).
      weights: Model -> "module:NAME" of a tuple of
        `jaxtrain.weights.sources.WeightsSource`: equivalent models of other libraries.
      convolutions: Platform ("cpu") -> "module:function" that replaces the convolutions
        of a model (see `jaxtrain.models.CONVOLUTIONS`).
      sources: Form of `data.source`, such as csv:FILE -> "module:function" that opens
        a data set (see `jaxtrain.data.stores.OpenStore`).
      inputs: Input type (a field of the section `data` and of model descriptions) ->
        "module:Class" of an `InputKind` (see `jaxtrain.data.input_kind`).
      index_files: Name of the file that identifies a data set's directory -> kind of
        `data.source` to read the directory with.
      layouts: Kind of `data.source` -> "module:Class" of the
        `jaxtrain.data.layouts.FolderLayout` of its directories.
      target_images: Kind of image-like targets -> "module:Class" of a
        `jaxtrain.data.target_images.TargetImages`.
      tasks: Task -> "module:Class" of a `jaxtrain.tasks.base.Task`.
      report_sections: Task -> "module:function" that takes the metrics and the names
        of classes or columns, and returns sections of the report as HTML.
      methods: Method -> "module:Class" of a `jaxtrain.training.methods.base.Method`.
      weights_options: Names of method options whose values refer to trained weights,
        like `model.pretrained`.
      optimizers: Optimizer -> "module:name" of a function that takes
        `optimizer.options`, or of a `jaxtrain.registry.Row` whose options are a
        `jaxtrain.config.OptimizerConfig`.
      schedules: Learning-rate schedule -> "module:name", as for `optimizers`; the
        function takes the peak learning rate, the number of steps of the run, and the
        number of warm-up steps.
      evaluations: Key in the results of `evaluate` -> "module:Class" of an
        `EvaluationPart` (see `jaxtrain.tools.evaluation.parts`).
      sections: Section of the config -> "module:Class" of a
        `jaxtrain.config.base.Section`. The module is imported together with the config,
        so it may import `jaxtrain.config.base`, but not `jaxtrain.config`.
      transforms: Step transform -> "module:function" that returns the `StepTransform`
        of a run, or None (see `jaxtrain.trainer.transforms`).
      exporters: Format -> "module:Class" of an `Exporter` (see `jaxtrain.export`).
      next_commands: Name -> "module:function" that returns a command to suggest after a
        run (see `jaxtrain.trainer.next_commands`).
      hints: Occasion, such as "memory" -> advice that is appended to a message of the
        core. It may contain placeholders, such as {program} (see `hints_on`).
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
    """Mapping from names to objects (rows) of the core and of plug-ins.

    Access to a row imports it. Iteration imports nothing, and yields the names of the
    core's rows first.
    """

    def __init__(self, kinds: str | tuple[str, ...], core: Mapping[str, str]) -> None:
        """Create a table.

        Args:
          kinds: Attributes of `Plugin` with rows of this table.
          core: Name -> "module" or "module:name" of a row of the core.
        """
        self.kinds = (kinds,) if isinstance(kinds, str) else kinds
        self.core = core

    @functools.cached_property
    def references(self) -> dict[str, str]:
        """Name of each row -> its import path: "module" or "module:name".

        Raises:
          UserError: Two rows have the same name.
        """
        rows, owners = dict(self.core), dict.fromkeys(self.core, "the core")
        for plugin in installed():
            for name, reference in self._rows_of(plugin).items():
                if name in rows:
                    raise UserError(
                        f"{self.kinds[-1]}: {name!r} is defined by {owners[name]} and "
                        f"by the plug-in {plugin.name!r}: uninstall the plug-in "
                        f"{plugin.name!r}"
                    )
                rows[name], owners[name] = reference, f"the plug-in {plugin.name!r}"
        return rows

    def __getitem__(self, name: str) -> T:
        """Import and return a row.

        Raises:
          UserError: A plug-in's row cannot be imported.
        """
        reference = self.references[name]
        try:
            return resolve(reference)
        except ImportError as error:
            if name in self.core:
                raise
            raise self._refusal(name, f"{type(error).__name__}: {error}") from error

    def check(self) -> None:
        """Check that plug-in rows have unique names and existing modules.

        Raises:
          UserError: Two rows have the same name, or a module is missing.
        """
        for name in self.references.keys() - self.core.keys():
            module = self.references[name].partition(":")[0]
            try:
                spec = importlib.util.find_spec(module)
            except ImportError:
                spec = None
            if spec is None:
                raise self._refusal(name, f"no module {module}")

    def _refusal(self, name: str, reason: str) -> UserError:
        owner = next(p.name for p, names in self.rows_by_plugin() if name in names)
        return UserError(
            f"{self.kinds[-1]}: {name!r} of the plug-in {owner!r} cannot be imported "
            f"({reason}): install the missing package, or uninstall the plug-in"
        )

    def rows_by_plugin(self) -> list[tuple[Plugin, list[str]]]:
        """Return the plug-ins that extend the table, with the names of their rows."""
        contributions = [(plugin, [*self._rows_of(plugin)]) for plugin in installed()]
        return [(plugin, names) for plugin, names in contributions if names]

    def _rows_of(self, plugin: Plugin) -> dict[str, str]:
        rows: dict[str, str] = {}
        for kind in self.kinds:
            rows |= getattr(plugin, kind)
        return rows

    def core_rows(self) -> list[T]:
        """Import and return the rows that the core defines, without plug-in rows."""
        return [resolve(reference) for reference in self.core.values()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.references)

    def __len__(self) -> int:
        return len(self.references)

    def __contains__(self, name: object) -> bool:
        return name in self.references


def hints_on(occasion: str, *, before: str = "; ", **known: object) -> str:
    """Return the joined hints of all plug-ins for an occasion, or "".

    Args:
      occasion: Key of `Plugin.hints`.
      before: Text before each hint.
      **known: Values of placeholders in the hints; {program} is predefined.
    """
    texts = [p.hints[occasion] for p in installed() if occasion in p.hints]
    known = {"program": invocation.program(), **known}
    return "".join(before + text.format(**known) for text in texts)


def resolve(reference: str) -> Any:
    """Import "module", or the attribute that "module:name" refers to.

    Raises:
      ImportError: The module or the attribute is missing.
    """
    module, _, name = reference.partition(":")
    imported = importlib.import_module(module)
    if not name:
        return imported
    if not hasattr(imported, name):
        raise ImportError(f"{module} has no {name}")
    return getattr(imported, name)


@functools.cache
def installed() -> tuple[Plugin, ...]:
    """Return the installed plug-ins, built-in plug-ins first.

    Plug-ins of other packages that cannot be imported are skipped with a warning.

    Raises:
      UserError: Two plug-ins have the same name, or a required plug-in is missing.
    """
    plugins = _built_in() + _from_entry_points()
    names = [plugin.name for plugin in plugins]
    for plugin in plugins:
        if names.count(plugin.name) > 1:
            raise UserError(
                f"two plug-ins have the name {plugin.name!r}: uninstall one of the two"
            )
        if missing := [name for name in plugin.requires if name not in names]:
            raise UserError(
                f"the plug-in {plugin.name!r} requires {', '.join(missing)}, which is "
                "not installed: install the missing plug-in"
            )
    return tuple(plugins)


def _built_in() -> list[Plugin]:
    if importlib.util.find_spec(GROUP) is None:
        return []
    names = getattr(importlib.import_module(GROUP), "NAMES", ())
    return [resolve(f"{GROUP}.{name}:PLUGIN") for name in names]


def _from_entry_points() -> list[Plugin]:
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
            what = f"{point.value} is {plugin!r}, expected a jaxtrain.plugin.Plugin"
        print_stderr(f"warning: the plug-in {point.name!r} is skipped: {what}")
    return plugins
