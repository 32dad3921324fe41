"""Reading of JSON files that this package wrote, with verification of the digest.

The digest is the last field: the SHA-256 of the other fields as JSON with sorted keys
and without whitespace. It does not depend on the order of fields or the formatting.
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
# Default remedy in messages about a damaged file.
RESTORE = "restore the file from a copy"


def with_digest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON file with their digest as the last field."""
    # Verification computes the digest from parsed JSON, in which all keys are strings.
    return {**values, FIELD: _digest(json.loads(json.dumps(values)))}


def read_object(path: Path, *, advice: str = RESTORE) -> dict[str, Any] | None:
    """Read a JSON file and verify its digest; return None if the file is missing.

    Args:
      path: Path of the file.
      advice: Remedy for a damaged file, for the message.

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
    """Whether a JSON file has a digest. A wrong digest raises UserError."""
    if read_object(path) is None:
        raise UserError(f"{path} does not exist: {RESTORE}")
    return FIELD in parse(read_bytes(path))


def parse_object(
    content: str | bytes, where: str, *, advice: str = RESTORE
) -> dict[str, Any]:
    """Parse a JSON object and verify its digest.

    An object without a digest is accepted, as users remove the digest after manual
    edits.

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
