"""`data_report.html` in a real browser."""

import html.parser
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from tests.helpers.processes import Cli
from tests.helpers.waiting import PATIENCE
from tests.helpers.zoo import HOSTILE, make_zoo

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        message = "no chromium: install Debian's package of that name"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def browse(browser: str, page: Path, *options: str) -> str:
    """Open a page without a screen, and return what is printed."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={page.parent / 'browser'}", *options]
    address = f"file://{quote(str(page))}"
    result = subprocess.run(
        [*command, address], capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


class _Elements(html.parser.HTMLParser):
    """Collects the text that is seen, and the elements."""

    def __init__(self, page: str):
        super().__init__()
        self.text, self.tags = "", list[tuple[str, dict[str, str | None]]]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_browser_shows_every_defect_and_obeys_no_name(
    tmp_path: Path, cli: Cli, write_config: Callable[..., Path], browser: str
):
    zoo = make_zoo(tmp_path / "set")
    # A class of a hostile name, and a file of one among what is shown.
    again = (zoo.root / "train/cat" / HOSTILE).read_bytes()
    zoo.add(None, "train/<b>class</b>".replace("/b", "b") + "/<i>x.png", again)
    assert cli("data", "--check", "--config", write_config(zoo.config())).code == 2
    page = cli.directory / "data_report" / "data_report.html"
    dom = browse(browser, page, "--dump-dom")
    seen = _Elements(dom)
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


@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_browser_paints_the_page(
    tmp_path: Path,
    cli: Cli,
    write_config: Callable[..., Path],
    browser: str,
    dark: bool,
):
    zoo = make_zoo(tmp_path / "set")
    assert cli("data", "--check", "--config", write_config(zoo.config())).code == 2
    page = cli.directory / "data_report" / "data_report.html"
    shot = tmp_path / "shot.png"
    options = [f"--screenshot={shot}", "--window-size=900,1600"]
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    browse(browser, page, *options)
    with Image.open(shot) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (1600, 900, 3)
    colours = {tuple(c) for c in pixels.reshape(-1, 3).tolist()}
    # Letters, edges and pictures; the background as the style says.
    assert len(colours) > 1000
    assert ((0x15, 0x18, 0x1C) in colours) == dark
    assert ((0xF6, 0xF7, 0xF9) in colours) != dark
