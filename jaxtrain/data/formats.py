"""Formats of image files: by the endings of names, and by what Pillow can read here."""

import ctypes
import functools
import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from PIL import Image, features

from jaxtrain import extras

# Tried in this order: PNG first reads small images a fifth faster than Pillow's own.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
# Formats in the container of ISO/IEC 14496-12, whose box `ftyp` comes first. Reading
# one takes a library that is not everywhere: only such a file loads it.
CONTAINED, CONTAINER = ("AVIF", "HEIF"), b"ftyp"
# Formats, as Pillow calls them -> endings of names, in lower case.
ENDINGS_OF = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "AVIF": (".avif",),
    "HEIF": (".heic", ".heif", ".hif"),
}
ENDINGS = {ending: name for name, endings in ENDINGS_OF.items() for ending in endings}
# Endings of images in formats that are never read.
UNKNOWN_IMAGES = (
    *(".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"),
    *(".dcm", ".exr", ".hdr", ".ico", ".j2k", ".jp2", ".jxl", ".pbm", ".pgm", ".pnm"),
    *(".ppm", ".psd", ".svg", ".tga"),
)
# Names the shared libraries that this process has loaded, on Linux.
MAPS = Path("/proc/self/maps")


@functools.cache
def is_read(name: str) -> bool:
    """Whether Pillow reads a format here; its plugin is loaded."""
    if name == "AVIF":
        return bool(features.check("avif"))
    if name == "HEIF":
        try:
            import pillow_heif
        except ImportError:
            return False
        pillow_heif.register_heif_opener(thumbnails=False)
    return True


def _reader_of(name: str) -> str:
    """Return the library with which Pillow reads a format, for messages."""
    if name == "AVIF":
        return "AVIF needs a Pillow built with it, as its wheels from 11.3 on are"
    return f"HEIC needs the extra heic: {extras.install('heic')}"


def ending(name: bytes) -> str:
    """Return the ending of a name of a file, in lower case; `` if it has none."""
    return os.path.splitext(os.fsdecode(name))[1].lower()


def is_image(name: bytes) -> bool:
    """Whether a file is taken for an image that is read here, by its ending."""
    found = ENDINGS.get(ending(name))
    return found is not None and is_read(found)


def may_be_image(name: bytes) -> bool:
    """Whether a file is taken for an image, of a format that is read here or not."""
    return ending(name) in (*ENDINGS, *UNKNOWN_IMAGES)


def is_unread(name: bytes) -> bool:
    """Whether a file is taken for an image of a format that is not read here."""
    return may_be_image(name) and not is_image(name)


def lacks_plugin(name: bytes) -> bool:
    """Whether a file would be read if a library were installed."""
    found = ENDINGS.get(ending(name))
    return found is not None and not is_read(found)


def readable_endings() -> list[str]:
    """Return the endings of the images that are read here."""
    return [text for text, name in ENDINGS.items() if is_read(name)]


def readable_formats() -> tuple[str, ...]:
    """Return the formats that are read here."""
    return FORMATS + tuple(name for name in CONTAINED if is_read(name))


def candidates(data: bytes) -> tuple[str, ...]:
    """Return the formats that a file may have, by its first bytes."""
    if not data.startswith(CONTAINER, 4):
        return FORMATS
    return tuple(name for name in CONTAINED if is_read(name))


def remedy(data: bytes) -> str | None:
    """Return the remedy for a file whose format is not read here."""
    if not data.startswith(CONTAINER, 4):
        return None
    needed = "AVIF" if data[8:12] in (b"avif", b"avis") else "HEIF"
    return None if is_read(needed) else _reader_of(needed)


def count_endings(names: Iterable[bytes]) -> dict[str, int]:
    """Count names by their endings, the most frequent first."""
    counts = Counter(ending(name) or "without an ending" for name in names)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return counts by ending in words, `80 .heic, 2 .txt`, and what is missing."""
    text = ", ".join(f"{number:,} {what}" for what, number in counts.items())
    missing = {ENDINGS[what] for what in counts if what in ENDINGS}
    told = [_reader_of(name) for name in sorted(missing) if not is_read(name)]
    return text + (f" ({'; '.join(told)})" if told else "")


def are_images(counts: Mapping[str, int]) -> int:
    """Count the images among some files by their endings, read here or not."""
    known = (*ENDINGS, *UNKNOWN_IMAGES)
    return sum(number for what, number in counts.items() if what in known)


@functools.cache
def keep_quiet() -> None:
    """Let Pillow and its libtiff tell of damage by exceptions, and print nothing.

    The limit of pixels is left to `max_pixels`.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    # Else Python prints what no handler takes.
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    Image.MAX_IMAGE_PIXELS = None
    maps = os.fsdecode(MAPS.read_bytes()) if MAPS.exists() else ""
    for path in {line.split(maxsplit=5)[-1] for line in maps.splitlines()}:
        if not Path(path).name.startswith("libtiff"):
            continue
        library = ctypes.CDLL(path)
        for kind in ("Error", "Warning"):
            handle = getattr(library, f"TIFFSet{kind}Handler")
            handle.argtypes, handle.restype = [ctypes.c_void_p], ctypes.c_void_p
            handle(None)
