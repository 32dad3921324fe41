"""The public names of the package."""

import re
import subprocess
import sys

import jaxtrain
from tests.helpers.forked import ROOT


def test_each_public_name_is_there_and_on_its_page():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in jaxtrain.__all__:
        assert getattr(jaxtrain, name).__doc__, name
        assert re.search(rf"`{name}\b", page), name
    assert {*jaxtrain.__all__} <= {*dir(jaxtrain)}


def test_importing_the_package_reads_none_of_it():
    code = "import jaxtrain, sys; print({*sys.modules} & {'jax', 'flax', 'numpy'})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "set()", found.stderr
