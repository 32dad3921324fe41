"""Config files that import what lies beside them."""

import sys
from pathlib import Path

import pytest

from jaxtrain.config.recipe import load_config
from jaxtrain.errors import UserError

RECIPE = """
from jaxtrain.config import *
from common import seed

def get_config():
    import lazy
    return Config(seed=seed() + lazy.MORE)
"""


def write(folder: Path, **files: str) -> Path:
    """Write modules into a folder; return the path of the one called recipe."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "recipe.py"


def common(seed: int) -> str:
    return f"from parts.numbers import BASE\ndef seed():\n    return BASE + {seed}\n"


def test_each_recipe_gets_the_modules_of_its_own_folder(tmp_path: Path):
    recipes = [
        write(
            tmp_path / name,
            recipe=RECIPE,
            common=common(seed),
            lazy="MORE = 100",
            parts__numbers=f"BASE = {10 * seed}",
        )
        for name, seed in (("one", 1), ("two", 2))
    ]
    path, modules = list(sys.path), set(sys.modules)
    for recipe, seed in (*zip(recipes, (111, 122), strict=True), (recipes[0], 111)):
        assert load_config(recipe).seed == seed
    assert sys.path == path
    assert not {"common", "lazy", "parts", "parts.numbers"} & set(sys.modules)
    assert modules <= set(sys.modules)


def test_a_recipe_is_found_by_a_path_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    seed = "def seed():\n    return 1\n"
    recipe = write(Path("configs"), recipe=RECIPE, common=seed, lazy="MORE = 1")
    assert load_config(recipe).seed == 2


def test_packages_in_use_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As of a recipe beside the folder of jaxtrain itself."""
    recipe = write(
        tmp_path,
        in_use____init__="",
        in_use__more="SEED = 3",
        recipe="from in_use.more import SEED\nfrom jaxtrain.config import *\n"
        "def get_config():\n    return Config(seed=SEED)\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    import in_use  # type: ignore[import-not-found]

    try:
        assert load_config(recipe).seed == 3
        assert sys.modules["in_use"] is in_use and "in_use.more" in sys.modules
    finally:
        del sys.modules["in_use"], sys.modules["in_use.more"]


@pytest.mark.parametrize(
    ("files", "place", "reason"),
    [
        ({"common": "x = 1\ny = x / 0\n"}, "common.py:2, for", "ZeroDivisionError"),
        (
            {"common": "from jaxtrain.config import *\n\nConvNetConfig(width=-1.0)\n"},
            "common.py:3, for",
            "width = -1.0",
        ),
        ({"common": common(1), "parts__numbers": "1 / 0\n"}, "parts/numbers.py:1", ""),
        ({"common": common(1), "parts__numbers": "x = 1\n"}, "common.py:1", "'BASE'"),
        ({"common": "def seed():\n    return 1\n"}, "recipe.py:6", "'lazy'"),
    ],
)
def test_errors_name_the_file_and_the_line(
    files: dict[str, str], place: str, reason: str, tmp_path: Path
):
    recipe = write(tmp_path, recipe=RECIPE, **files)
    path = list(sys.path)
    with pytest.raises(UserError) as error:
        load_config(recipe)
    assert str(error.value).startswith(str(tmp_path / place)), error.value
    assert str(recipe) in str(error.value) and reason in str(error.value)
    assert sys.path == path and "common" not in sys.modules


def test_a_recipe_may_change_where_modules_are_looked_for(tmp_path: Path):
    path = list(sys.path)
    tidy = "import sys\nfrom jaxtrain.config import *\nsys.path.clear()\n"
    recipe = write(tmp_path, recipe=tidy + "def get_config():\n    return Config()\n")
    load_config(recipe)
    assert sys.path == path
