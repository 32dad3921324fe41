"""JSON files that this package has written: read back, with a look at their digest.

The digest, the last field, is the SHA-256 of the other fields as JSON with sorted keys
and without spaces, so that neither their order nor how the file is laid out matters.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import parse
from jaxtrain.regular_file import read_bytes

# The field of the digest.
FIELD = "sha256"
# What to do about a damaged file, where there is nothing better to say.
RESTORE = "restore it from a copy"


def with_digest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of JSON with their digest as the last field."""
    # Written and read once, as JSON has text alone for keys.
    return {**values, FIELD: _digest(json.loads(json.dumps(values)))}


def read_object(path: Path, *, advice: str = RESTORE) -> dict[str, Any] | None:
    """Return the fields of a file, after a look at its digest; None: there is no file.

    Args:
      advice: What to do about a damaged file.

    Raises:
      UserError: It cannot be read, or is damaged.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path} cannot be read ({reason}): {advice}") from None
    return parse_object(content, str(path), advice=advice)


def has_digest(path: Path) -> bool:
    """Whether a file has a digest, which is then that of its values."""
    if read_object(path) is None:
        raise UserError(f"{path} is not there: {RESTORE}")
    return FIELD in parse(read_bytes(path))


def parse_object(
    content: str | bytes, where: str, *, advice: str = RESTORE
) -> dict[str, Any]:
    """Return the fields of a JSON text, after a look at its digest.

    A text without a digest, which somebody has changed by hand, is taken as it is.

    Raises:
      UserError: It is no JSON object, or damaged.
    """
    try:
        values = parse(content)
    except ValueError as error:
        raise UserError(f"{where} cannot be read ({error}): {advice}") from None
    if not isinstance(values, dict):
        raise UserError(f"{where} cannot be read: it is no JSON object: {advice}")
    if FIELD in values and values.pop(FIELD) != _digest(values):
        raise UserError(
            f"{where} is not what was written: its values do not have the digest in "
            f"its field {FIELD!r}. If it is damaged, {advice}; if you changed it on "
            f"purpose, remove the field {FIELD!r}"
        )
    return values


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
