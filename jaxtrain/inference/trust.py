"""`--trust`: allow the parts of the user's own that a saved run or model names.

Their files are shown, and compared with the digests that were recorded when the run was
trained or the model was exported. A part whose file differs is refused if it is loaded.
"""

import importlib.util
import os
import py_compile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxtrain import own
from jaxtrain.config import Config, own_references
from jaxtrain.config.recipe import WEIGHTS, is_run, read_run
from jaxtrain.console import tell
from jaxtrain.errors import UserError
from jaxtrain.inference import description, folder, foreign, mistaken
from jaxtrain.inference.description import Description
from jaxtrain.models.weights import hub
from jaxtrain.records.workdir import read_own_parts


class Named(NamedTuple):
    """The own parts that a folder names.

    Attributes:
      parts: Field -> the own part that it names.
      digests: Recorded SHA-256 of their files, by `own.place_of`.
      again: How the user records the files as they are now.
    """

    parts: list[tuple[str, str]]
    digests: Mapping[str, str]
    again: str


NOTHING = Named([], {}, "")


def trust(path: str | os.PathLike[str]) -> None:
    """Show and compare the files of the own parts that a folder names; allow them.

    Args:
      path: As `load_model` takes it.

    Raises:
      UserError: There is no run and no model, or a file of it cannot be read.
    """
    text = os.fspath(path)
    mistaken.check_is_model(text)
    named = _named(text)
    if not named.parts:
        tell(f"--trust: {text} names no parts of your own")
    for field, name in named.parts:
        _decide(f"{field} = {name!r}", name, named)


def trust_pretrained(config: Config) -> None:
    """Do what `trust` does with the model that a recipe begins with.

    Raises:
      UserError: It begins with none.
    """
    path = config.model.pretrained
    if path is None:
        raise UserError(
            "--trust has no effect without model.pretrained: what the recipe and the "
            "command line name is loaded in any case; leave it out"
        )
    trust(path)


def _named(text: str) -> Named:
    from_hub = text.startswith(hub.PREFIX)
    place = hub.fetch(text, WEIGHTS) if from_hub else Path(text)
    if is_run(place):
        return _named_by_run(place)
    if place.name in WEIGHTS:
        place = place.parent
    if not (place / foreign.CONFIG).is_file():
        return NOTHING
    described = foreign.read_config(place / foreign.CONFIG).get(folder.OURS)
    if not isinstance(described, dict):
        return NOTHING
    about = Description.from_dict(described.get("model"), str(place / foreign.CONFIG))
    digests = described.get(folder.OWN_PARTS)
    return Named(
        _of_description(about),
        digests if isinstance(digests, dict) else {},
        "export the model again",
    )


def _named_by_run(workdir: Path) -> Named:
    parts = own_references(read_run(workdir))
    if (workdir / description.MODEL).exists():
        parts += _of_description(description.read(workdir))
    return Named(
        list(dict.fromkeys(parts)),
        read_own_parts(workdir),
        "run its training command again, which records the file as it is now",
    )


def _of_description(about: Description) -> list[tuple[str, str]]:
    task = [("task", about.task)] if own.is_own(about.task) else []
    return own_references(about.model, "model.") + task


def _decide(shown: str, name: str, named: Named) -> None:
    """Allow a part, or refuse it with the reason; tell which."""
    place, file = own.place_of(name), own.find_file(name)
    recorded = named.digests.get(place)
    found = own.digests([name]).get(place)
    reason = None
    if file is None and not place.endswith(".py"):
        reason = f"there is no file of {place} that --trust could show"
    elif found is not None and recorded not in (None, found):
        reason = (
            f"{file} has sha256 {found}, and {recorded} was recorded: restore the "
            f"file, or {named.again}"
        )
    elif file is not None:
        reason = _renew_bytecode(file)
    if reason is not None:
        own.refuse(name, reason)
        tell(f"--trust: {shown} is not allowed: {reason}")
        return
    own.allow([name])
    compared = "as recorded" if recorded else "nothing is recorded to compare it with"
    if found is None:  # Loading it tells where it was looked for.
        tell(f"--trust: {shown} is not there")
    else:
        tell(f"--trust: {shown} is allowed: {file}, sha256 {found}, {compared}")


def _renew_bytecode(file: Path) -> str | None:
    """Replace the compiled file beside a module, which Python would run in its place.

    Returns:
      Why that failed; None if it did not.
    """
    compiled = Path(importlib.util.cache_from_source(str(file)))
    if file.suffix == ".py" and compiled.exists():
        try:
            py_compile.compile(str(file), str(compiled), doraise=True)
        except (OSError, py_compile.PyCompileError) as error:
            return f"{compiled} cannot be made again ({error}): remove it"
    return None
