"""The examples of docs/python.md, run one after another as in a notebook."""

import doctest
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxtrain.weights.identify import shapes_there
from jaxtrain.weights.sources import SOURCES
from tests.helpers.processes import ROOT

TEXT = (ROOT / "docs" / "python.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(example: doctest.Example, names: dict[str, Any]) -> str:
    """Return the value of an example, or what it raises, whatever it prints."""
    try:
        if not example.want:
            exec(example.source, names)
            return ""
        return f"{eval(example.source, names)!r}\n"
    except Exception as error:
        if example.exc_msg is None:
            raise
        kind = type(error)
        return f"{kind.__module__}.{kind.__qualname__}: {error}\n"


@pytest.mark.slow
def test_examples_give_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    row = SOURCES["resnet18"][1]
    shapes = shapes_there(row, "resnet18", 3, 1000)
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    save_file(arrays, "resnet18.safetensors")
    names: dict[str, Any] = {}
    examples = [
        x for text in BLOCKS for x in doctest.DocTestParser().get_examples(text)
    ]
    assert len(BLOCKS) == 11 and sum(bool(x.want) for x in examples) >= 10
    for example in examples:
        found = run(example, names)
        expected = example.exc_msg or example.want
        told = f"{example.source}gave {found}"
        assert doctest.OutputChecker().check_output(expected, found, FLAGS), told
