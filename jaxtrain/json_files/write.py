"""Writing of JSON files, indented and with a digest; non-finite numbers become null."""

import json
import math
import re
from pathlib import Path
from typing import Any

from jaxtrain import atomic_file
from jaxtrain.json_files.read import with_digest

# Matches a list of numbers, booleans or nulls in indented JSON.
_ROWS = re.compile(r'\[\n\s+([^\[\]{}"]*?)\n\s+\]')


def write_digested(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON file with a digest, to be verified by `json_files.read`."""
    write_json(path, with_digest(finite(values)))


def write_json(path: Path, values: dict[str, Any]) -> None:
    text = json.dumps(finite(values), indent=2, allow_nan=False)
    text = _ROWS.sub(lambda row: f"[{' '.join(row[1].split())}]", text)
    atomic_file.write(path, text + "\n")


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, with None."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
