"""`main.py data --prepare`, `--pack` and `--verify`: other forms of a data set."""

import dataclasses
from typing import TYPE_CHECKING, Any

from jaxtrain.config import replace
from jaxtrain.console import printable
from jaxtrain.data.packed.store import verify as verify_packed
from jaxtrain.data.packing.writer import pack as pack_data
from jaxtrain.errors import UserError

if TYPE_CHECKING:
    from jaxtrain.commands.data import DataArguments


def prepare(arguments: "DataArguments") -> None:
    """Prepare a TFDS set, and print where it lies.

    Raises:
      UserError: the set, a folder or TensorFlow is missing, or preparing failed.
    """
    from jaxtrain.data.tfds_prepare import prepare

    assert arguments.prepare is not None
    path = prepare(
        arguments.prepare,
        data_dir=arguments.data_dir,
        manual_dir=arguments.manual_dir,
    )
    print(f"{arguments.prepare} is prepared in {path}")


def pack(arguments: "DataArguments") -> None:
    """Pack a source, and print what was left out.

    Raises:
      UserError: the source cannot be read, or the folder not be written.
    """
    assert arguments.pack is not None
    if arguments.out is None:
        raise UserError("--pack: give the folder to pack into, --out DIR")
    given: dict[str, Any] = {
        name: str(path)
        for name in ("data_dir", "include")
        if (path := getattr(arguments, name)) is not None
    }
    # The fields that the action takes; the others are as they were.
    fields = arguments.overrides.data
    config = dataclasses.replace(fields, source=arguments.pack, **given)
    if arguments.max_bad_fraction is not None:
        config = replace(config, "max_bad_fraction", arguments.max_bad_fraction)
    form = arguments.format or "jpeg"
    index = pack_data(config, arguments.out, size=arguments.size, format=form)
    print(f"{arguments.pack} is packed in {arguments.out}: {index.describe()}")
    for split, left_out in index.left_out.items():
        for _, name, reason in left_out:
            print(printable(f"left out of {split}: {name} is unreadable: {reason}"))


def verify(arguments: "DataArguments") -> None:
    """Compare a packed folder with its digests.

    Raises:
      UserError: a file is missing or was changed.
    """
    assert arguments.verify is not None
    index = verify_packed(arguments.verify)
    print(f"{arguments.verify} is as it was packed: {index.describe()}")
