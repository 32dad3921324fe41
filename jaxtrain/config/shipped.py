"""Recipes that ship with jaxtrain, selected by name: `--config digits`."""

from pathlib import Path

import jaxtrain
from jaxtrain.errors import UserError, nearest
from jaxtrain.json_files.run_id import CONFIG


def folder() -> Path:
    """Directory of the recipes: in the package, or next to it in a checkout."""
    package = Path(jaxtrain.__file__).parent
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "configs"


def find(named: str) -> Path:
    """Return the file that `--config` names.

    Args:
      named: Path of a config file, or the name of a recipe. An existing path takes
        precedence.

    Raises:
      UserError: `named` has no suffix, and is neither a file nor a recipe.
    """
    path = Path(named)
    is_name = path.name == named and not path.suffix
    if not is_name or path.is_file() or (path / CONFIG).is_file():
        return path
    recipe = folder() / f"{named}.py"
    if recipe.is_file():
        return recipe
    known = sorted(found.stem for found in folder().glob("*.py"))
    near = nearest(named, known, "; perhaps you meant {}", num=3)
    raise UserError(
        f"--config {named}: no file and no recipe has this name"
        + (near or f": give the path of a recipe, or {', '.join(known)}")
    )


def with_paths(words: list[str]) -> list[str]:
    """Replace `--config NAME` by `--config PATH` in command-line arguments."""
    found, is_value = list[str](), False
    for word in words:
        name, equals, value = word.partition("=")
        if is_value and not word.startswith("--"):
            word = str(find(word))
        elif name == "--config" and equals:
            word = f"--config={find(value)}"
        is_value = word == "--config"
        found.append(word)
    return found
