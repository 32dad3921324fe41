"""`audio:DIR`: sound files, in one folder for each class."""

import dataclasses
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.data import sound_files
from jaxtrain.data.folder import open_files
from jaxtrain.data.folder_scan import FileKind
from jaxtrain.data.image_files import ImageFileStore
from jaxtrain.data.image_source import SOUND
from jaxtrain.data.sound_files import ENDINGS_OF_SOUNDS
from jaxtrain.data.stores import Opened

SOUNDS = FileKind("sound", sound_files.is_sound, lambda: ENDINGS_OF_SOUNDS, "sound.wav")


@dataclasses.dataclass(frozen=True)
class SoundStore(ImageFileStore):
    """Sound files below `root`, read as files, and the numbers of their classes."""

    @property
    def image_shape(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Shape of a clip, which all have."""
        return self.facts[SOUND].stored_shape


def open_audio(name: str, config: DataConfig) -> Opened:
    """Open sounds that lie in one folder a class, or so in train/, val/ and test/.

    Raises:
      UserError: it is no such folder, or holds what cannot be used; or the library that
        reads sounds is not installed.
    """
    sound_files.check_installed()
    store, splits = open_files(name, config, SOUNDS)
    assert isinstance(store, ImageFileStore)
    facts = {**store.facts, SOUND: config.sound}
    parts = store.root, store.names, store.target, facts, store.remarks
    return SoundStore(*parts), splits
