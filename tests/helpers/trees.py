"""The syntax of the package, which is parsed once for all tests."""

import ast
import functools
from pathlib import Path

import jaxtrain

PACKAGE = Path(jaxtrain.__file__).parent


@functools.cache
def nodes() -> dict[Path, list[ast.AST]]:
    """Return all nodes of each module of the package, by its path below `PACKAGE`."""
    return {
        path.relative_to(PACKAGE): list(ast.walk(ast.parse(path.read_text("utf-8"))))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
