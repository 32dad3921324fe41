"""Facts of compiled steps, kept from one command to the next."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.parallel.devices import cache_folder
from jaxtrain.performance import gpu_compiler
from jaxtrain.performance.facts import Facts, Job, compile_facts
from jaxtrain.performance.targets import HERE, Target
from jaxtrain.records.workdir import write_json

_OWN = re.compile(r"([^\s:]+\.py):\w+")


def facts_of(
    configs: Sequence[Config], target: Target, shape: Any
) -> list[Facts | str]:
    """Return the facts of each config, or why there are none; compile what is new.

    Args:
      configs: settled.
      target: to compile for.
      shape: what else the program depends on: the shape and classes of the data.

    Raises:
      UserError: nothing can be compiled for the target.
    """
    # What this machine has may change.
    keep = None if target.name == HERE else cache_folder("plans")
    paths = [keep and keep / f"{_key(c, target, shape)}.json" for c in configs]
    known = [_read(path) for path in paths]
    missing = [i for i, facts in enumerate(known) if facts is None]
    if missing:
        job = Job(configs=[configs[i] for i in missing], target=target)
        new = gpu_compiler.call(compile_facts, job, target)
        for i, facts in zip(missing, new, strict=True):
            known[i] = facts
            path = paths[i]
            if path is not None and isinstance(facts, Facts):
                write_json(path, dataclasses.asdict(facts))
    return [facts for facts in known if facts is not None]


def _read(path: Path | None) -> Facts | str | None:
    if path is None or not path.exists():
        return None
    try:
        return Facts(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None  # Of a write that was cut off: it is made anew.


def _key(config: Config, target: Target, shape: Any) -> str:
    """Return a digest of all that the facts depend on."""
    text = config_lib.to_json(config)
    own = [_digest(Path(path)) for path in _OWN.findall(text) if Path(path).exists()]
    gpu = target.gpu and (gpu_compiler.find(), target.gpu.description())
    parts = [text, own, str(target), str(gpu), repr(shape), jax.__version__, _package()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def _package() -> str:
    """Return a digest of this package's files."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256("".join(map(_digest, files)).encode()).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
