"""JSON files changed by hand, as a person may who has read what a message advises."""

import json
from pathlib import Path
from typing import Any


def edit(path: Path, **changes: Any) -> None:
    """Set fields such as `optimizer__learning_rate`, and remove the digest."""
    values = json.loads(path.read_text())
    values.pop("sha256", None)
    for name, value in changes.items():
        *sections, field = name.split("__")
        section = values
        for inner in sections:
            section = section[inner]
        section[field] = value
    path.write_text(json.dumps(values))
