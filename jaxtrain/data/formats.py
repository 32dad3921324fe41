"""Image formats: file extensions, and formats that the installed Pillow can read."""

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

# Formats in the order of detection: with PNG first, small images are read 20 % faster.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
# Formats in ISO/IEC 14496-12 containers, which start with a `ftyp` box. They need
# optional libraries, which are imported on first use.
CONTAINED, CONTAINER = ("AVIF", "HEIF"), b"ftyp"
# Pillow's name of a format -> its file extensions, in lower case.
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
# Extensions of unsupported image formats.
UNKNOWN_IMAGES = (
    *(".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"),
    *(".dcm", ".exr", ".hdr", ".ico", ".j2k", ".jp2", ".jxl", ".pbm", ".pgm", ".pnm"),
    *(".ppm", ".psd", ".svg", ".tga"),
)
# File that lists the shared libraries of this process, on Linux.
MAPS = Path("/proc/self/maps")


@functools.cache
def is_read(name: str) -> bool:
    """Whether Pillow can read a format. Loads the plug-in that the format needs."""
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
    """Describe the library required to read AVIF or HEIF, for messages."""
    if name == "AVIF":
        return (
            "AVIF needs Pillow with AVIF support: install Pillow 11.3 or later from a "
            "wheel"
        )
    return (
        f"HEIC requires pillow-heif, which is not installed: {extras.install('heic')}"
    )


def ending(name: bytes) -> str:
    """Return the extension of a file name in lower case, or ""."""
    return os.path.splitext(os.fsdecode(name))[1].lower()


def is_image(name: bytes) -> bool:
    """Whether a file name has the extension of a supported image format."""
    name_of_format = ENDINGS.get(ending(name))
    return name_of_format is not None and is_read(name_of_format)


def may_be_image(name: bytes) -> bool:
    """Whether a file name has the extension of any image format."""
    return ending(name) in (*ENDINGS, *UNKNOWN_IMAGES)


def is_unread(name: bytes) -> bool:
    """Whether a file name has the extension of an unsupported image format."""
    return may_be_image(name) and not is_image(name)


def lacks_plugin(name: bytes) -> bool:
    """Whether a file cannot be read because an optional library is missing."""
    name_of_format = ENDINGS.get(ending(name))
    return name_of_format is not None and not is_read(name_of_format)


def readable_endings() -> list[str]:
    """Return the extensions of supported image formats."""
    return [text for text, name in ENDINGS.items() if is_read(name)]


def readable_formats() -> tuple[str, ...]:
    """Return the supported image formats."""
    return FORMATS + tuple(name for name in CONTAINED if is_read(name))


def candidates(data: bytes) -> tuple[str, ...]:
    """Return the formats to try for a file, given its first bytes."""
    if not data.startswith(CONTAINER, 4):
        return FORMATS
    return tuple(name for name in CONTAINED if is_read(name))


def remedy(data: bytes) -> str | None:
    """Return the remedy for a file that needs an optional library, or None."""
    if not data.startswith(CONTAINER, 4):
        return None
    needed = "AVIF" if data[8:12] in (b"avif", b"avis") else "HEIF"
    return None if is_read(needed) else _reader_of(needed)


def count_endings(names: Iterable[bytes]) -> dict[str, int]:
    """Count file names by extension, most frequent first."""
    counts = Counter(ending(name) or "without an extension" for name in names)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def describe_counts(counts: Mapping[str, int]) -> str:
    """Format counts by extension, as in `80 .heic, 2 .txt`; name missing libraries."""
    text = ", ".join(f"{number:,} {what}" for what, number in counts.items())
    missing = {ENDINGS[what] for what in counts if what in ENDINGS}
    readers = [_reader_of(name) for name in sorted(missing) if not is_read(name)]
    return text + (f" ({'; '.join(readers)})" if readers else "")


def count_images(counts: Mapping[str, int]) -> int:
    """Sum the counts of image extensions, supported or not."""
    known = (*ENDINGS, *UNKNOWN_IMAGES)
    return sum(number for what, number in counts.items() if what in known)


@functools.cache
def keep_quiet() -> None:
    """Silence warnings of Pillow and libtiff; damaged files still raise exceptions.

    Pillow's limit on pixels is disabled in favour of `data.max_pixels`.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    # Without a handler, Python would print warnings to stderr.
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
