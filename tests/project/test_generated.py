"""The generated pages of the documentation are up to date."""

import runpy

import pytest

from jaxtrain import config as config_lib
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
    assert all(f"| `{path}` |" in page for path in config_lib.paths())
