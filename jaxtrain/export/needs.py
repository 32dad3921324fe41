"""Libraries that only some exports need."""

import importlib
from typing import Any

from jaxtrain.errors import UserError

INSTALL = "pip install 'jaxtrain[export]'"


def need(module: str) -> Any:
    """Import a library of the extra `export`.

    Raises:
      UserError: it is not installed.
    """
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise UserError(
            f"--format onnx needs {name}, which is not installed: {INSTALL}"
        ) from None
