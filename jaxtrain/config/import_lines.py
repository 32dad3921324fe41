"""Import statements of generated recipes."""

import collections
from collections.abc import Iterable

import jaxtrain.config


def imports_of(classes: Iterable[type]) -> str:
    """Return the import statements of config classes, sorted as by ruff."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for kind in classes:
        public = kind.__name__ in jaxtrain.config.__all__
        module = jaxtrain.config.__name__ if public else kind.__module__
        found[module].append(kind.__name__)
    statements = []
    for module, names in sorted(found.items()):
        line = f"from {module} import {', '.join(sorted(names))}"
        if len(line) > 88 or module == jaxtrain.config.__name__:
            listed = "".join(f"    {name},\n" for name in sorted(names))
            line = f"from {module} import (\n{listed})"
        statements.append(line)
    return "\n".join(statements)
