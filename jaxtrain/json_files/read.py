"""Read a JSON file that this package has written."""

import json
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from jaxtrain.errors import UserError
from jaxtrain.json_files import digest, typed
from jaxtrain.regular_file import read_bytes

T = TypeVar("T")

# What to do about a damaged file, where there is nothing better to say.
RESTORE = "restore it from a copy"


def read_json(path: Path, kind: type[T], *, advice: str = RESTORE) -> T | None:
    """Return what a file holds, after a look at its digest; None: there is no file.

    Args:
      path: Of the file.
      kind: What it holds: see `typed.convert`.
      advice: What to do about a damaged file.

    Raises:
      UserError: It cannot be read, is damaged, or holds something else.
    """
    values = read_object(path, advice=advice)
    if values is None:
        return None
    try:
        return typed.convert(values, kind, str(path))
    except UserError as error:
        raise UserError(f"{error}: {advice}") from None


def read_object(path: Path, *, advice: str = RESTORE) -> dict[str, Any] | None:
    """Return the fields of a file, whatever they are: see `read_json`."""
    content = _content(path, advice)
    return None if content is None else parse_object(content, str(path), advice=advice)


def has_digest(path: Path) -> bool:
    """Whether a file has a digest, which is then that of its values.

    Raises:
      UserError: The file is not there, cannot be read, or is damaged.
    """
    content = _content(path, RESTORE)
    if content is None:
        raise UserError(f"{path} is not there: {RESTORE}")
    values = _load(content, str(path), RESTORE)
    return digest.without_digest(values, str(path), RESTORE) != values


def parse_object(
    content: str | bytes, where: str, *, advice: str = RESTORE
) -> dict[str, Any]:
    """Return the fields of a JSON text, after a look at its digest.

    Raises:
      UserError: It is no JSON object, or damaged.
    """
    return digest.without_digest(_load(content, where, advice), where, advice)


def _content(path: Path, advice: str) -> bytes | None:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path} cannot be read ({reason}): {advice}") from None


def _load(content: str | bytes, where: str, advice: str) -> dict[str, Any]:
    try:
        text = content.decode() if isinstance(content, bytes) else content
        values = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} cannot be read ({error}): {advice}") from None
    if not isinstance(values, dict):
        raise UserError(f"{where} cannot be read: it is no JSON object: {advice}")
    return values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
