"""Reading of JSON files written by this package, with verification of their digest.

The digest, the last field, is the SHA-256 of the other fields as JSON with sorted keys
and without whitespace, independent of field order and formatting.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import parse
from jaxtrain.regular_file import read_bytes

# Name of the digest field.
FIELD = "sha256"
# Default remedy for a damaged file.
RESTORE = "restore the file from a copy"


def with_digest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values with their digest as the last field."""
    # Encode and parse first: verification sees parsed values, with strings as keys.
    return {**values, FIELD: _digest(json.loads(json.dumps(values)))}


def read_object(path: Path, *, advice: str = RESTORE) -> dict[str, Any] | None:
    """Read a JSON file and verify its digest; return None if the file is missing.

    Args:
      path: Path of the file.
      advice: Remedy for a damaged file.

    Raises:
      UserError: The file is unreadable or damaged.
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
    """Whether a JSON file has a digest; a wrong digest raises UserError."""
    if read_object(path) is None:
        raise UserError(f"{path} does not exist: {RESTORE}")
    return FIELD in parse(read_bytes(path))


def parse_object(
    content: str | bytes, where: str, *, advice: str = RESTORE
) -> dict[str, Any]:
    """Parse a JSON object and verify its digest.

    An object without a digest, as after manual edits, is accepted.

    Raises:
      UserError: The content is not a JSON object, or the digest does not match.
    """
    try:
        values = parse(content)
    except ValueError as error:
        raise UserError(f"{where} cannot be read ({error}): {advice}") from None
    if not isinstance(values, dict):
        raise UserError(f"{where} is not a JSON object: {advice}")
    if FIELD in values and values.pop(FIELD) != _digest(values):
        raise UserError(
            f"{where} does not match the digest in the field {FIELD!r}: if the file is "
            f"damaged, {advice}; after a deliberate edit, remove the field {FIELD!r}"
        )
    return values


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
