"""The generated pages of the documentation are up to date."""

import runpy

import pytest

from jaxtrain import config as config_lib
from jaxtrain.config.part import part_tables
from tests.helpers.processes import ROOT

DOCS = ROOT / "docs"
PAGES = runpy.run_path(str(DOCS / "generate.py"))["PAGES"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str):
    """If not, run `python docs/generate.py`."""
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_field_is_in_the_reference():
    page = (DOCS / "config.md").read_text(encoding="utf-8")
    # The headings have the names of tasks and methods.
    named = {f"{section}.name" for section in part_tables(config_lib.Config)}
    paths = {*config_lib.paths()} - named
    assert all(f"| `{path}` |" in page for path in paths)
