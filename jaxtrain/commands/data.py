"""`main.py data`."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--prepare tfds:mnist"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Prepare a TFDS data set, or pack any data set to read it fast."""

    # Download and prepare this data set, such as tfds:mnist, to train without
    # TensorFlow.
    prepare: str | None = None
    # Pack the splits of this data.source, to be trained on as packed:DIR.
    pack: str | None = None
    # Read all files of this packed folder, and compare them with their digests.
    verify: Path | None = None

    # Folder with files that TFDS cannot, or need not, download (--prepare).
    manual_dir: Path | None = None
    # Where TFDS data sets lie; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets
    # (--prepare, --pack).
    data_dir: Path | None = None
    # The folder to pack into (--pack).
    out: Path | None = None
    # Pixels of the shorter side of larger images, of raw ones of both sides; None: as
    # stored (--pack).
    size: int | None = None
    # Image files (jpeg), or arrays of one size (raw); None: jpeg (--pack).
    format: Literal["jpeg", "raw"] | None = None
    # Part of a split's images that may be unreadable, and are left out; None: 0.02
    # (--pack).
    max_bad_fraction: float | None = None
    # A file that lists the images to keep, as data.include (--pack).
    include: Path | None = None


def run(arguments: Arguments, signals: StopSignals) -> None:
    """Do one of the actions, and print what it did.

    Raises:
      UserError: not one action is given, an option has no effect on it, or it failed.
    """
    given = [
        f.name for f in fields(Arguments) if getattr(arguments, f.name) is not None
    ]
    actions = [name for name in given if name in ACTIONS]
    if len(actions) != 1:
        raise UserError(f"give one of {', '.join(f'--{name}' for name in ACTIONS)}")
    function, options = ACTIONS[actions[0]]
    for name in given:
        if name not in (*actions, *options):
            option = name.replace("_", "-")
            raise UserError(f"--{option} has no effect on --{actions[0]}")
    function(arguments)


def _prepare(arguments: Arguments) -> None:
    from jaxtrain.data.tfds_prepare import prepare

    assert arguments.prepare is not None
    path = prepare(
        arguments.prepare,
        data_dir=arguments.data_dir,
        manual_dir=arguments.manual_dir,
    )
    print(f"{arguments.prepare} is prepared in {path}")


def _pack(arguments: Arguments) -> None:
    from jaxtrain.config import DataConfig, replace
    from jaxtrain.console import printable
    from jaxtrain.data.packed.writer import pack

    assert arguments.pack is not None
    if arguments.out is None:
        raise UserError("--pack: give the folder to pack into, --out DIR")
    given: dict[str, Any] = {
        name: str(path)
        for name in ("data_dir", "include")
        if (path := getattr(arguments, name)) is not None
    }
    config = DataConfig(source=arguments.pack, **given)
    if arguments.max_bad_fraction is not None:
        config = replace(config, "max_bad_fraction", arguments.max_bad_fraction)
    form = arguments.format or "jpeg"
    index = pack(config, arguments.out, size=arguments.size, format=form)
    print(f"{arguments.pack} is packed in {arguments.out}: {index.describe()}")
    for split, left_out in index.left_out.items():
        for _, name, reason in left_out:
            print(printable(f"left out of {split}: {name} is unreadable: {reason}"))


def _verify(arguments: Arguments) -> None:
    from jaxtrain.data.packed.store import verify

    assert arguments.verify is not None
    index = verify(arguments.verify)
    print(f"{arguments.verify} is as it was packed: {index.describe()}")


# Action -> what does it, and the options that it takes.
ACTIONS: dict[str, tuple[Callable[[Arguments], None], tuple[str, ...]]] = {
    "prepare": (_prepare, ("data_dir", "manual_dir")),
    "pack": (
        _pack,
        ("out", "size", "format", "data_dir", "max_bad_fraction", "include"),
    ),
    "verify": (_verify, ()),
}
