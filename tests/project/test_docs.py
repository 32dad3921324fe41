"""The pages of the documentation: their links lead somewhere."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from jaxtrain import cli
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row

PAGES = [
    page
    for folder in (ROOT, ROOT / "benchmarks", ROOT / "docs")
    for page in sorted(folder.glob("*.md"))
]


def anchors(page: Path) -> set[str]:
    """Return the names of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def test_the_results_list_each_recipe_as_measured_or_not():
    """As in the docstrings of the recipes."""
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    section = results.partition("## Recipes")[2].partition("\n## ")[0]
    table, _, rest = section.partition("Of the ")
    rest = "Of the " + rest
    found: dict[str, list[str]] = {"Measured:": [], "unmeasured": []}
    for path in sorted((ROOT / "configs").glob("*.py")):
        about = ast.get_docstring(ast.parse(path.read_text()))
        (kind,) = [kind for kind in found if kind in (about or "")]
        found[kind].append(path.name)
    assert set(re.findall(r"`configs/(\w+\.py)`", table)) == {*found["Measured:"]}
    assert sorted(re.findall(r"`(\w+\.py)`", rest)) == found["unmeasured"]
    num = len(found["unmeasured"])
    told = f"Of the {num + len(found['Measured:'])} recipes the other {num} are not"
    assert rest.startswith(told)


@pytest.mark.plugins
def test_each_plugin_has_a_page_that_the_readme_leads_to():
    """Of its name."""
    readme = (ROOT / "README.md").read_text()
    from jaxtrain.plugins import NAMES

    assert [name for name in NAMES if f"(docs/{name}.md)" not in readme] == []


@each_row("page", PAGES)
def test_links_lead_to_files_and_headings(page: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if heading:
            assert heading in anchors(target), link


# A line of code, without what stands before and behind it, and the line below it.
COMMAND = r"^ {4,}.*?\bpython main\.py (.*?)(?: +#.*|;.*)?(?=\n(.*))"
# What stands for something of the reader's.
FORM = re.compile(r"\[|\bFILE\b")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_options_and_values_that_there_are(
    page: Path, monkeypatch: pytest.MonkeyPatch
):
    """Recipes of the reader's own are taken for the digits."""
    monkeypatch.chdir(ROOT)
    text = page.read_text().replace("\\\n", "")
    of_packages = re.findall(r'commands=\{"([\w-]+)":', text)  # Not installed here.
    tasks = re.findall(r'tasks=\{"([\w-]+)":', text)
    for line, below in re.findall(COMMAND, text, re.MULTILINE):
        if line.split()[0] in of_packages or any(f"--task {x}" in line for x in tasks):
            continue
        if FORM.search(line) or below.strip().startswith("error:"):
            continue
        words = shlex.split(line.removesuffix(" --help"))
        name = "train" if words[0].startswith("-") else words.pop(0)
        if name == "train" and "--config" not in words:  # The run is not there.
            words += ["--config", "configs/digits.py"]
        if "--config" in words:
            place = words.index("--config") + 1
            recipe = Path(words[place])
            words[place] = str(recipe if recipe.exists() else "configs/digits.py")
        cli.parse(name, words)
