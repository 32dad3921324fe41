"""`--trust`: permission to run the custom modules of a saved run or model.

The files of the modules are shown, and compared with the digests recorded at training
or export. Loading a module with another digest fails.
"""

import importlib.util
import os
import py_compile
from collections.abc import Mapping
from pathlib import Path

from jaxtrain import own
from jaxtrain.config import Config, own_references
from jaxtrain.config.recipe import CONFIG, is_saved, read_run
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError
from jaxtrain.records.workdir import read_own_parts
from jaxtrain.training.methods import weights_options
from jaxtrain.weights import description, folder, foreign, spec
from jaxtrain.weights.description import Description

# Tuple: pairs (config field, custom module) that a directory names, recorded SHA-256 by
# module (see `own.module_of`), and advice on recording the SHA-256 of current files.
Named = tuple[list[tuple[str, str]], Mapping[str, str], str]


def trust(path: str | os.PathLike[str]) -> None:
    """Show and allow the custom modules of a run or model, unless digests differ.

    Args:
      path: Path of a run or model; see `load_model`.

    Raises:
      UserError: The path is not a run or a model, or a file is unreadable.
    """
    text = os.fspath(path)
    modules, digests, again = _named(spec.find(text))
    if not modules:
        print_stderr(f"--trust has no effect: {text} names no custom code")
    for field, name in modules:
        recorded = digests.get(own.module_of(name))
        _decide(f"{field} = {name!r}", name, recorded, again)


def trust_recipe(recipe: Path | None, config: Config) -> None:
    """Apply `trust` to the runs and models that a recipe starts from.

    Args:
      recipe: Path of the recipe. For a run's config.json, the run is trusted, too.
      config: Config of the recipe.

    Raises:
      UserError: The recipe does not start from a run or a model.
    """
    paths = [*spec.weights_in(config).values()]
    if recipe is not None and is_saved(recipe):
        paths.insert(0, str(recipe.parent))
    if not paths:
        fields = ", or a ".join(["model.pretrained", *weights_options()])
        raise UserError(
            f"--trust has no effect without {fields}, as custom code named by the "
            "recipe and the command line is always loaded: leave --trust out"
        )
    for path in paths:
        trust(path)


def _named(found: spec.Spec) -> Named:
    if found.is_run:
        return _named_by_run(found.path)
    path = found.path / CONFIG
    if found.is_file or not path.is_file():
        return [], {}, ""
    described = foreign.read_config(path).get(folder.OURS)
    if not isinstance(described, dict):
        return [], {}, ""
    about = Description.from_dict(described.get("model"), str(path))
    digests = described.get(folder.OWN_PARTS)
    digests = digests if isinstance(digests, dict) else {}
    return _modules_of(about), digests, "export the model again"


def _named_by_run(workdir: Path) -> Named:
    modules = own_references(read_run(workdir))
    if (workdir / description.MODEL).exists():
        modules += _modules_of(description.read(workdir))
    again = "run the training command again, which records the current file"
    return list(dict.fromkeys(modules)), read_own_parts(workdir), again


def _modules_of(about: Description) -> list[tuple[str, str]]:
    task = [("task.name", about.task)] if own.is_own(about.task) else []
    return own_references(about.model, "model.") + task


def _decide(shown: str, name: str, recorded: str | None, again: str) -> None:
    """Allow or refuse a custom module, and print the decision.

    Args:
      shown: Field and value that name the module, for messages.
      name: Name of the module.
      recorded: SHA-256 recorded at training or export, if any.
      again: Advice on recording the SHA-256 of the current file.
    """
    module, file = own.module_of(name), own.find_file(name)
    current = own.digests([name]).get(module)
    reason = None
    if file is None and not module.endswith(".py"):
        reason = f"--trust finds no source file of {module} to show"
    elif current is not None and recorded not in (None, current):
        reason = (
            f"{file} has sha256 {current}, and {recorded} was recorded: restore the "
            f"file, or {again}"
        )
    elif file is not None:
        reason = _renew_bytecode(file)
    if reason is not None:
        own.refuse(name, reason)
        print_stderr(f"--trust: {shown} is not allowed: {reason}")
        return
    own.allow([name])
    compared = "as recorded" if recorded else "no digest is recorded"
    if current is None:  # Loading raises an error with the searched directories.
        print_stderr(f"--trust: {shown} does not exist")
    else:
        print_stderr(
            f"--trust: {shown} is allowed: {file}, sha256 {current}, {compared}"
        )


def _renew_bytecode(file: Path) -> str | None:
    """Recompile the cached bytecode of a module, so that it matches the source.

    Returns:
      The reason for a failure, or None on success.
    """
    compiled = Path(importlib.util.cache_from_source(str(file)))
    if file.suffix == ".py" and compiled.exists():
        try:
            py_compile.compile(str(file), str(compiled), doraise=True)
        except (OSError, py_compile.PyCompileError) as error:
            return f"{compiled} cannot be recompiled ({error}): remove the file"
    return None
