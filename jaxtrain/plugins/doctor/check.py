"""Check of a data set: open it, scan it, run the checks, and write the reports."""

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain import atomic_file
from jaxtrain.config import Config, replace
from jaxtrain.data import images, opening, sources
from jaxtrain.data.conversions import conversion_remarks
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.data.sources import Splits
from jaxtrain.errors import UserError
from jaxtrain.plugins.doctor import checks, page, report
from jaxtrain.plugins.doctor.boxes import check_boxes
from jaxtrain.plugins.doctor.columns import check_columns
from jaxtrain.plugins.doctor.labels import check_labels
from jaxtrain.plugins.doctor.masks import check_dense_targets
from jaxtrain.plugins.doctor.numbers import check_numbers
from jaxtrain.plugins.doctor.report import LEVELS, Diagnosis, Finding
from jaxtrain.plugins.doctor.scan import Scan, scan

JSON, PAGE = "data_report.json", "data_report.html"
# Default image size: a multiple of the strides of all tasks.
_ANY_SIZE = 512
# Function (config, splits) -> (name of the task, [(kind, message)]). The list has all
# errors that would stop a run.
Judge = Callable[[Config, Splits], tuple[str | None, list[tuple[str, str]]]]


def check(
    config: Config,
    out: Path,
    *,
    sized: bool,
    judge: Judge | None = None,
    predicted: Mapping[str, np.ndarray] | None = None,
    clean_list: Path | None = None,
) -> Diagnosis:
    """Check a data set, and write `data_report.json` and `data_report.html`.

    Args:
      config: Config of the run.
      out: Directory of the reports.
      sized: Whether the config is a recipe, which must set the image size if images
        differ in size.
      judge: Function that returns the errors that would stop a run
        (`jaxtrain.trainer.data_checks.judge`). None skips the checks of the task.
      predicted: Split -> predicted probabilities of a trained model, (n, classes).
      clean_list: Output file for the names of images without problems, or None.

    Raises:
      UserError: The data set cannot be opened, or a file cannot be written.
    """
    start = time.perf_counter()
    store, named = opening.open_store(config.data)
    if clean_list is not None and not hasattr(store, "names"):
        raise UserError(
            f"--write-clean {clean_list}: {config.data.source} has no image files to "
            "list for data.include; leave --write-clean out"
        )
    # Read the image sizes: they must be equal if a recipe does not set an image size.
    shape = store.image_shape
    if sized:
        shape = sources.stored_shape(config.data, store, named)
    complete = _complete(config, shape)
    loaded = sources.load_splits(complete.data, config.seed, store, named, shape)
    parts, train = loaded.named(), loaded.train
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from None
    splits = {name: source.indices for name, source in parts.items()}
    scanned = scan(train, splits, config.data.source)
    same = checks.find_equal(scanned)
    targets = "masks" if PIXEL_CLASSES in store.facts else "boxes"
    if "sound" in vars(train.input):
        sizes = checks.check_lengths(scanned, config.data.sound)
    else:
        sizes = checks.check_sizes(scanned, shape, config.data, sized=sized)
    task, refused = (None, []) if judge is None else judge(complete, loaded)
    found = [
        *(Finding(kind, "error", text) for kind, text in refused),
        *checks.check_remarks(store, conversion_remarks(train, config.data)),
        *checks.check_files(
            scanned, config.data, targets if train.transforms_targets else ""
        ),
        *sizes,
        *checks.check_blank(scanned),
        *checks.check_duplicates(scanned, same),
        *checks.check_classes(scanned),
        *check_columns(train, config),
        *check_numbers(scanned, train, config),
        *check_dense_targets(scanned, train, config),
        *checks.check_lost(scanned, train),
        *check_boxes(scanned, train, config.data),
    ]
    errors = {finding.kind for finding in found if finding.level == "error"}
    found = [one for one in found if one.level == "error" or one.kind not in errors]
    noise: dict[str, float] = {}
    if scanned.labels is not None and predicted is not None:
        doubtful, noise = check_labels(scanned, splits, predicted)
        found += doubtful
    diagnosis = Diagnosis(
        config=config,
        task=task,
        train=train,
        scan=scanned,
        findings=sorted(found, key=lambda finding: LEVELS.index(finding.level)),
        label_noise=noise,
        seconds=time.perf_counter() - start,
    )
    _write(out / JSON, report.to_json(diagnosis))
    _write(out / PAGE, page.make_page(diagnosis))
    if clean_list is not None:
        left_out = checks.rows_to_leave_out(scanned, same)
        _write(clean_list, clean_names(store, scanned, left_out))
    return diagnosis


def clean_names(store: Any, scan: Scan, left_out: Collection[int]) -> bytes:
    """Return the contents of a file for `data.include`: one image name per line.

    If a name contains a line break, all names are separated by NUL instead.

    Args:
      store: Store; `store.names[index]` is the path of an image relative to the
        directory of the data set, in bytes.
      scan: Scan of the data set.
      left_out: Rows of the scan whose images are not listed.
    """
    kept = [
        os.fsencode(store.names[index])
        for row, index in enumerate(scan.index.tolist())
        if row not in left_out
    ]
    breaks = any(len(name.splitlines()) > 1 for name in kept)
    return b"".join(name + (b"\0" if breaks else b"\n") for name in kept)


def _complete(config: Config, stored: sources.StoredShape) -> Config:
    """Set `data.image_size` if images differ in size and the config does not set it."""
    if not images.lacks_size(stored, config.data.image_size):
        return config
    return replace(config, "data.image_size", _ANY_SIZE)


def _write(path: Path, text: bytes) -> None:
    """Write a file atomically.

    Raises:
      UserError: The file cannot be written.
    """
    try:
        atomic_file.write(path, text)
    except OSError as error:
        raise UserError(
            f"--out: cannot write {path} ({error.strerror}); choose another directory"
        ) from None
