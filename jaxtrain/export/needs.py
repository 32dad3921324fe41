"""Libraries that only some exports need."""

import importlib
from typing import Any

from jaxtrain.errors import UserError


def need(module: str) -> Any:
    """Import a library of the extra `export`.

    Raises:
      UserError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise UserError(
            f"--format onnx needs {error.name}, which is not installed: "
            "pip install 'jaxtrain[export]'"
        ) from None
