"""`audio:DIR`: sound files in class folders; `audio:FILE.csv`: a table of sound files.

The table has the same columns as `csv:FILE`, except `mask`.
"""

import dataclasses
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.data.csv_list import open_csv
from jaxtrain.data.folder import open_files
from jaxtrain.data.image_files import ImageFileStore
from jaxtrain.data.input_kind import INPUT
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError
from jaxtrain.plugins.sound import sound_files
from jaxtrain.plugins.sound.sound_input import SOUNDS, SoundInput


@dataclasses.dataclass(frozen=True)
class SoundStore(ImageFileStore):
    """Store of sound files and their targets."""

    @property
    def image_shape(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Shape of each clip, (samples, 1, 1)."""
        return self.facts[INPUT].sound.stored_shape


def open_audio(name: str, config: DataConfig) -> Opened:
    """Open the sounds in a table or in class folders.

    Raises:
      UserError: The data are missing or invalid, or the sound library is not installed.
    """
    sound_files.check_installed()
    if name.lower().endswith(".csv"):
        store, splits = open_csv(name, config)
    else:
        _check_no_columns(config)
        store, splits = open_files(name, config, SOUNDS)
    if not isinstance(store, ImageFileStore):
        raise UserError(
            f"{config.source} has a column 'mask', which sounds do not support: add a "
            "column 'label', or name columns in data.targets"
        )
    facts = {**store.facts, INPUT: SoundInput(config.sound)}
    parts = store.root, store.names, store.target, facts, store.remarks
    return SoundStore(*parts), splits


def _check_no_columns(config: DataConfig) -> None:
    for field in ("targets", "label_separator"):
        value = getattr(config, field)
        if value:
            raise UserError(
                f"data.{field} = {value!r} has no effect on class folders: list the "
                f"sounds in a table, audio:FILE.csv, or leave data.{field} out"
            )
