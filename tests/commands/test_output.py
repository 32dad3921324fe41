"""Standard output that is full, closed or ASCII; errors of the system as messages."""

import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrain import console
from jaxtrain.cli import main
from jaxtrain.commands import models
from jaxtrain.errors import OutputError
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row


@contextlib.contextmanager
def output_to(descriptor: int, encoding: str = "utf-8") -> Iterator[None]:
    """Let the descriptor 1 lead elsewhere, with Python's own stream above it."""
    sys.stdout.flush()
    before, streams = os.dup(1), (sys.stdout, sys.__stdout__)
    os.dup2(descriptor, 1)
    stream = open(1, "w", closefd=False, encoding=encoding)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = stream  # type: ignore[misc]
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(descriptor)
        sys.stdout, sys.__stdout__ = streams  # type: ignore[misc]
        console.require_output(False)


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def closed_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


@each_row(("make", "reason"), [(full, "No space left"), (closed_pipe, "Broken pipe")])
def test_a_run_goes_on_without_its_output(
    make: Any, reason: str, capsys: pytest.CaptureFixture[str]
):
    """It is told once, and nothing is left that Python could not write at its end."""
    with output_to(make()):
        with console.guarded():
            for _ in range(3):
                print("a line", flush=True)
            console.lost_output()
        sys.stdout.flush()
    told = capsys.readouterr().err
    assert told.count("warning: cannot write standard output") == 1
    assert reason in told and "Traceback" not in told


@each_row(("make", "number"), [(full, errno.ENOSPC), (closed_pipe, errno.EPIPE)])
def test_a_command_whose_result_is_its_output_ends(make: Any, number: int):
    with output_to(make()):
        console.guard()
        console.require_output()
        print("in the buffer")
        error = console.lost_output()
        assert error is not None and error.errno == number
        print("more", flush=True)  # What follows is dropped: Python flushes, too.
    with output_to(make()):
        console.guard()
        console.require_output()
        with pytest.raises(OutputError):
            print("a line", flush=True)


def test_a_listing_needs_its_output():
    with output_to(full()), contextlib.suppress(OutputError):
        console.guard()
        assert main(["models"]) == 0
        assert console.lost_output() is not None


def test_any_text_can_be_printed(tmp_path: Path):
    """Names of files that ASCII, or Unicode, does not have are escaped."""
    path = tmp_path / "out"
    with output_to(os.open(path, os.O_WRONLY | os.O_CREAT), "ascii"), console.guarded():
        print("größe ☃ \udcff")
    assert path.read_bytes() == rb"gr\xf6\xdfe \u2603 \udcff" + b"\n"


def test_a_full_pipe_that_does_not_block_is_waited_for():
    """Whoever shares a terminal or a pipe may have made it so."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    received = list[bytes]()

    def take() -> None:
        with open(read, "rb") as file:
            received.append(file.read())

    reader = threading.Thread(target=take)
    with output_to(write), console.guarded():
        threading.Timer(0.05, reader.start).start()
        print("x" * 1_000_000)
    while not reader.is_alive() and not received:
        pass
    reader.join()
    assert received == [b"x" * 1_000_000 + b"\n"]


def test_streams_of_others_stay():
    """Such as those of a notebook."""
    before = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()) as out, console.guarded():
        print("a line")
        assert sys.stdout is out
    assert out.getvalue() == "a line\n" and sys.stdout is before


@each_row(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "No space", "/full/x"), "/full/x: No space: free disk"),
        (
            OSError(errno.EROFS, "Read-only", "/ro"),
            "/ro: Read-only: choose a directory",
        ),
        (PermissionError(errno.EACCES, "Denied", "/x"), "/x: Denied: change the perm"),
        (OSError(errno.EMFILE, "Too many"), "(ulimit -n 4096), or set a smaller data."),
        (BlockingIOError(errno.EAGAIN, "Again"), "ulimit -u"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory"), "TMPDIR"),
        (MemoryError(), "out of memory (MemoryError)"),
    ],
)
def test_an_error_of_the_system_is_one_message(
    error: Exception,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Also where a library has made another error of it."""
    for wrapped in (False, True):

        def fail(*_: object) -> None:
            if wrapped:  # noqa: B023
                raise RuntimeError("it failed") from error
            raise error

        monkeypatch.setattr(models, "require_output", fail)
        if wrapped and isinstance(error, MemoryError):
            continue
        assert main(["models"]) == 2
        assert named in capsys.readouterr().err


def test_other_errors_are_bugs(monkeypatch: pytest.MonkeyPatch):
    def fail() -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", "/x")

    monkeypatch.setattr(models, "require_output", fail)
    with pytest.raises(FileNotFoundError):
        main(["models"])


def test_a_current_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    recipe = write_recipe(tmp_path / "recipe.py", "Config()")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["--config", str(recipe)]) == 2
    assert "the current directory was removed" in capsys.readouterr().err
    assert main(["models"]) == 0


OWN = "import sys\nfrom jaxtrain.models.small import ConvNet\n\n\n"
MODEL = (
    "Config(model=CustomModelConfig(name='{}:Net'), data=DataConfig(source='digits'))"
)
EXITS = "class Net(ConvNet):\n    def __init__(self, *args, **options):\n        {}\n"


@each_row(
    ("name", "text", "code", "named"),
    [
        ("recipe", "", 2, "recipe.py:5: SystemExit: 3"),
        ("top", "import sys\nsys.exit(0)\n", 2, "top.py failed: SystemExit: 0"),
        ("net", OWN + EXITS.format("sys.exit(0)"), 2, "net.py:7: SystemExit: 0:"),
        ("stop", OWN + EXITS.format("raise KeyboardInterrupt"), 130, "interrupted;"),
    ],
)
def test_a_part_of_ones_own_that_exits(
    name: str,
    text: str,
    code: int,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """`sys.exit(0)` in it is no run that is done; of Ctrl-C it has the exit code."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"exits_{name}.py"
    file.write_text(text)
    recipe = write_recipe(tmp_path / "recipe.py", MODEL.format(file))
    if not text:
        recipe.write_text("import sys\n\n\ndef get_config():\n    sys.exit(3)\n")
    assert main(["--config", str(recipe)]) == code
    assert named in capsys.readouterr().err
