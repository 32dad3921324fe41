"""Fixtures and the environment of all tests: the CPU, and one compilation cache."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.helpers import cpu_limit, places, quick

# Workers of xdist are part of the run that starts them.
CONTROLS = "PYTEST_XDIST_WORKER" not in os.environ

# Before JAX is imported, here and in every subprocess.
os.environ["JAX_PLATFORMS"] = "cpu"
if CONTROLS:
    TEMPORARY = places.temporary()
    os.environ["XDG_CACHE_HOME"] = str(places.cache(TEMPORARY))
    # Libraries leave files there.
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(dir=TEMPORARY)
os.environ.setdefault("XLA_FLAGS", quick.FLAGS)
# A command that starts JAX in this process must not decide it for all tests.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

from jaxtrain import invocation  # noqa: E402
from jaxtrain.parallel import devices  # noqa: E402
from tests.helpers import digits  # noqa: E402
from tests.helpers.needs import missing  # noqa: E402
from tests.helpers.processes import ROOT, Cli, end_all  # noqa: E402
from tests.helpers.recipes import write_recipe  # noqa: E402
from tests.helpers.tiers import share  # noqa: E402

# Also for what runs before the first command, and for single operations.
devices._enable_compilation_cache()
# Commands that messages show are as for a user who calls `main.py`.
invocation.note("main.py", "python")

DISK_BYTES = 12_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", default="1/1", help="K/N: the K-th of N parts of the tests"
    )
    parser.addoption(
        "--cpu-limit",
        action="store_true",
        help="let default tests fail that take seconds of CPU time",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Keep the part that --part names of the tests that -m has chosen."""
    part = share(items, str(config.getoption("--part")))
    others = {*items} - {*part}
    if others:
        config.hook.pytest_deselected(items=list(others))
    items[:] = part


@pytest.hookimpl(tryfirst=True)  # Before pytest reads the option.
def pytest_configure(config: pytest.Config) -> None:
    """Leave nothing behind, also when stopped; `--basetemp` names a folder to keep."""
    if config.getoption("--cpu-limit"):
        config.pluginmanager.register(cpu_limit.from_environment(), "cpu-limit")
    if not CONTROLS:
        return
    if config.option.basetemp is None:
        config.option.basetemp = TEMPORARY / "t"
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)


def interrupt(signum: int, frame: FrameType | None) -> None:
    """End the run as Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `tests/helpers/digits.py`; a test that changes it takes a copy."""
    return digits.train(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """What a test starts ends with the test, whatever the test comes to."""
    cli = Cli(tmp_path)
    yield cli
    end_all(cli.started)


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let XLA optimise the programs of this test's processes, as those of a user."""
    monkeypatch.setenv("XLA_FLAGS", "")


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Write such a file into the folder of the test."""

    def write(expression: str, name: str = "recipe.py") -> Path:
        return write_recipe(tmp_path / name, expression)

    return write


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk that is small; root can mount one, so that such tests are slow."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
    if mounted.returncode:
        missing(f"cannot mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def fashion_mnist_dir() -> str:
    """The folder where `make fashion-mnist` has prepared the real data set."""
    directory = Path(os.environ.get("TFDS_DATA_DIR", ROOT / ".data" / "tfds"))
    if not (directory / "fashion_mnist").is_dir():
        missing(f"no fashion_mnist in {directory}: run `make fashion-mnist`")
    return str(directory)


@pytest.fixture(autouse=True)
def same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the folders of a user's own parts, which stay on the path of a run."""
    monkeypatch.setattr(sys, "path", sys.path[:])
