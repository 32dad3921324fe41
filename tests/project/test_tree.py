"""What is committed: sources alone, nothing that belongs to one machine."""

import subprocess

import pytest

from tests.helpers.processes import ROOT


def listed(*options: str) -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="an archive of the sources has no history"
)


def test_no_link_is_committed():
    """Such as one to the environment of the machine that it was made on."""
    links = [line for line in listed("--stage") if line.startswith("120000")]
    assert links == []


def test_nothing_that_git_ignores_is_committed():
    assert listed("--cached", "--ignored", "--exclude-standard") == []
