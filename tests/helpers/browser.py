"""A page in a real browser, without a screen."""

import html.parser
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

from tests.helpers.needs import missing
from tests.helpers.waiting import PATIENCE

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# The background, as the style says: by day and by night.
LIGHT, DARK = (0xF6, 0xF7, 0xF9), (0x15, 0x18, 0x1C)
# Loads a page in frames of some widths, and writes down how wide its contents are.
MEASURE = """<!doctype html><body><script>
const page = PAGE, widths = WIDTHS;
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.width = width;
  frame.height = 800;
  frame.onload = () => {
    const root = frame.contentDocument.documentElement;
    const found = document.createElement("p");
    found.textContent = `${width} ${root.scrollWidth} ${root.scrollHeight}`;
    document.body.append(found);
    frame.remove();
  };
  frame.srcdoc = page;
  document.body.append(frame);
}
</script></body>"""


def find_browser() -> str:
    """Return the path of a browser."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        missing("no chromium: install Debian's package of that name")
    return found


def browse(page: Path, *options: str) -> tuple[str, list[str]]:
    """Open a page; return what is printed, and the lines of the console."""
    command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--enable-logging=stderr", "--hide-scrollbars"]
    command += [f"--user-data-dir={page.parent / 'browser'}", *options]
    address = f"file://{quote(str(page))}"
    result = subprocess.run(
        [*command, address], capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stderr
    told = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return result.stdout, told


def screenshot(page: Path, width: int, height: int, *, dark: bool) -> np.ndarray:
    """Return the pixels of a page, uint8 (height, width, 3)."""
    shot = page.with_suffix(".png")
    options = [f"--screenshot={shot}", f"--window-size={width},{height}"]
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    browse(page, *options)
    with Image.open(shot) as image:
        return np.asarray(image.convert("RGB"))


class Elements(html.parser.HTMLParser):
    """Collects the text that is seen, and the elements."""

    def __init__(self, page: str):
        super().__init__()
        self.text, self.tags = "", list[tuple[str, dict[str, str | None]]]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
