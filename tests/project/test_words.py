"""How messages, names, docstrings and the pages of the documentation are worded."""

import ast
import collections
import re
from collections.abc import Iterator
from pathlib import Path

from jaxtrain.errors import counted
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.trees import nodes

SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted((ROOT / "jaxtrain").rglob("*.py"))
}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "RESULTS.md",
]
PAGES += (ROOT / "docs").glob("*.md")
OPEN_PLURAL = r"\b[a-z]+\((?:s|es)\)(?=[ ,;:.\"'{])"


@each_row(
    ("words", "expected"),
    [
        ((1, "step"), "1 step"),
        ((0, "step"), "0 steps"),
        ((1200, "device"), "1,200 devices"),
        ((1, "process", "processes"), "1 process"),
        ((2, "process", "processes"), "2 processes"),
    ],
)
def test_numbers_with_their_nouns(words: tuple, expected: str):
    assert counted(*words) == expected


def test_no_message_leaves_the_plural_open():
    """As in `1 process(es)`: see `counted`."""
    assert len(SOURCES) > 300
    found = [
        f"{path}: {match}"
        for path, text in SOURCES.items()
        for match in re.findall(OPEN_PLURAL, text)
        if match not in ("len(s)", "str(s)", "set(s)")
    ]
    assert found == []


def test_a_class_name_stands_for_one_thing():
    found = collections.defaultdict(list)
    for path, inside in nodes().items():
        for node in inside:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def docstrings() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path, inside in nodes().items():
        for node in inside:
            if isinstance(node, kinds) and (about := ast.get_docstring(node)):
                yield path, about


@each_row(
    "phrase",
    [
        r"\A(?:What|Which|Where|How|Those|Of|So|Such|Tell)\b",
        r"\AReturn (?:what|those|that|which|whether)\b",
        r"\b(?:those|that) of\b",
        r"\bof (?:its|their|his) own\b",
        r"\bwhat there is\b|\bas is asked\b|\bin (?:its|their) turn\b|\banew\b",
    ],
)
def test_docstrings_name_the_thing_first(phrase: str):
    """A noun phrase or a verb; no relative clause or pronoun that stands for it."""
    found = [where for where in docstrings() if re.search(phrase, where[1])]
    assert found == []


def test_an_argument_is_described_by_three_words_or_more():
    found = [
        (path, entry)
        for path, about in docstrings()
        for block in re.findall(r"^Args:\n((?:  .*\n?)+)", about, re.MULTILINE)
        for entry in re.split(r"\n(?=  \S)", block.rstrip())
        if len(entry.partition(":")[2].split()) < 3
    ]
    assert found == []


@each_row("page", sorted(PAGES))
def test_lines_of_a_page_have_fewer_than_100_columns(page: Path):
    """Except tables, code and lists of links, which Markdown cannot break."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = [
        line
        for line in prose.splitlines()
        if len(line) >= 100
        and not line.startswith(("|", "    "))
        and "](https://" not in line
    ]
    assert found == []
