"""A digest as the last field of a JSON file, by which damage is found.

It is the SHA-256 of the other fields as JSON with sorted keys and without spaces, so
that neither the order of the fields nor how the file is laid out matters.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jaxtrain.errors import UserError

FIELD = "sha256"


def with_digest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of JSON with their digest as the last field."""
    # Written and read once, as JSON has text alone for keys.
    return {**values, FIELD: _digest(json.loads(json.dumps(values)))}


def without_digest(values: dict[str, Any], where: str, advice: str) -> dict[str, Any]:
    """Return what was given to `with_digest`.

    Files of earlier versions have no digest, and nor have those whose digest was
    removed after they were changed by hand: these are taken as they are.

    Args:
      values: As they were read.
      where: They were read from, for messages.
      advice: What to do about a damaged file.

    Raises:
      UserError: The digest is that of other values.
    """
    rest = {name: value for name, value in values.items() if name != FIELD}
    if FIELD in values and values[FIELD] != _digest(rest):
        raise UserError(
            f"{where} is not what was written: its values do not have the digest in "
            f"its field {FIELD!r}. If it is damaged, {advice}; if you changed it on "
            f"purpose, remove the field {FIELD!r}"
        )
    return rest


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
