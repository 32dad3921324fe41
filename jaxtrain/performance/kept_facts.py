"""Facts of compiled steps, kept from one command to the next."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.console import tell
from jaxtrain.errors import UserError
from jaxtrain.json_files.read import read_json
from jaxtrain.parallel.devices import cache_folder
from jaxtrain.performance import gpu_compiler
from jaxtrain.performance.facts import Facts, compile_facts
from jaxtrain.performance.targets import HERE, Target
from jaxtrain.records.workdir import write_digested

# What of JAX's variables does not change a program.
_NO_MATTER = {"JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"}


def facts_of(
    configs: Sequence[Config], target: Target, shapes: Any
) -> list[Facts | str]:
    """Return the facts of each config, or why there are none; compile what is new.

    Args:
      configs: Configs that are settled.
      target: GPU to compile for.
      shapes: Shapes of the data, on which the program depends, too.

    Raises:
      UserError: nothing can be compiled for the target.
    """
    paths = [_path(config, target, shapes) for config in configs]
    known = [_read(path) for path in paths]
    missing = [i for i, facts in enumerate(known) if facts is None]
    if missing:
        _tell([configs[i] for i in missing], target)
        new = gpu_compiler.call(
            target, compile_facts, [configs[i] for i in missing], target
        )
        for i, facts in zip(missing, new, strict=True):
            known[i] = facts
            path = paths[i]
            if path is not None and isinstance(facts, Facts):
                write_digested(path, dataclasses.asdict(facts))
    return [facts for facts in known if facts is not None]


def _tell(configs: Sequence[Config], target: Target) -> None:
    sizes = sorted({config.data.batch_size for config in configs})
    programs = f"{len(configs)} programs" if len(configs) > 1 else "a program"
    tell(
        f"compiling {programs} for {target}, batch {', '.join(map(str, sizes))}: "
        "up to a minute each"
    )


def _read(path: Path | None) -> Facts | str | None:
    if path is None:
        return None
    try:
        return read_json(path, Facts)
    except UserError:
        return None  # It is damaged, or of another version: it is made anew.


def _path(config: Config, target: Target, shapes: Any) -> Path | None:
    """Return where facts are kept; None: they are not.

    They are not where they may change unseen: what this machine has, and what parts of
    the user's own import.
    """
    folder = cache_folder("plans")
    if folder is None or target.name == HERE or config_lib.own_references(config):
        return None
    compiler: Any = os.sysconf("SC_PHYS_PAGES")
    if target.gpu is not None:
        compiler = gpu_compiler.find(), target.gpu.description()
    variables = {
        name: value
        for name, value in sorted(gpu_compiler.environment(target).items())
        if name == "XLA_FLAGS" or (name.startswith("JAX_") and name not in _NO_MATTER)
    }
    text = config_lib.to_json(config)
    parts = [text, str(target), str(compiler), variables, repr(shapes)]
    digest = hashlib.sha256(repr([*parts, jax.__version__, _package()]).encode())
    return folder / f"{digest.hexdigest()}.json"


@cache
def _package() -> str:
    """Return a digest of this package's files."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    joined = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)
    return hashlib.sha256(joined).hexdigest()
