"""`data_report.html` in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.browser import Elements, browse
from tests.helpers.processes import Cli
from tests.helpers.zoo import HOSTILE, make_zoo


@pytest.mark.slow
def test_a_browser_shows_every_defect_and_obeys_no_name(
    tmp_path: Path, cli: Cli, write_config: Callable[..., Path]
):
    zoo = make_zoo(tmp_path / "set")
    # A class of a hostile name, and a file of one among what is shown.
    again = (zoo.root / "train/cat" / HOSTILE).read_bytes()
    zoo.add(None, "train/<b>class</b>".replace("/b", "b") + "/<i>x.png", again)
    assert cli("data", "--check", "--config", write_config(zoo.config())).code == 2
    page = cli.directory / "data_report" / "data_report.html"
    dom, console = browse(page, "--dump-dom")
    assert not console
    seen = Elements(dom)
    for names in zoo.planted.values():
        for name in names:
            assert Path(name).name in seen.text
    # Text that the browser shows, and nothing that it has made of it.
    assert HOSTILE in seen.text
    assert "<b>class<b>" in seen.text and "<i>x.png" in seen.text
    images = [attrs for tag, attrs in seen.tags if tag == "img"]
    assert len(images) > 20
    assert all((attrs["src"] or "").startswith("data:image/") for attrs in images)
    assert not any(name.startswith("on") for _, attrs in seen.tags for name in attrs)
    tags = {tag for tag, _ in seen.tags}
    assert not tags & {"script", "link", "iframe", "object", "form"}
    links = [attrs.get("href") or "" for tag, attrs in seen.tags if tag == "a"]
    assert links and all(link.startswith("#finding-") for link in links)
    assert not re.search(r"(https?:)?//", re.sub(r"base64,[^\"]*", "", dom))
