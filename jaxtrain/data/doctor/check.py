"""The check of a data set, top to bottom: open, look, find, write."""

import dataclasses
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain import atomic_file
from jaxtrain.config import Config
from jaxtrain.data import sources
from jaxtrain.data.doctor import checks, page, report
from jaxtrain.data.doctor.boxes import check_boxes
from jaxtrain.data.doctor.columns import check_columns
from jaxtrain.data.doctor.labels import check_labels
from jaxtrain.data.doctor.masks import check_placed
from jaxtrain.data.doctor.numbers import check_numbers
from jaxtrain.data.doctor.report import LEVELS, Diagnosis
from jaxtrain.data.doctor.scan import Scan, scan
from jaxtrain.data.image_source import Source
from jaxtrain.data.slices import NamedSplits
from jaxtrain.data.stores import Store
from jaxtrain.errors import UserError

JSON, PAGE = "data_report.json", "data_report.html"
# Stands for the size of the images where the config names none: nothing is resized.
_ANY_SIZE = 1


def check(
    config: Config,
    out: Path,
    *,
    sized: bool,
    predicted: Mapping[str, np.ndarray] | None = None,
    clean_list: Path | None = None,
) -> Diagnosis:
    """Look a data set over, and write `data_report.json` and `data_report.html`.

    Args:
      config: Config of the run that it is for.
      out: Folder of the reports.
      sized: whether the config is a recipe, which must say what it needs.
      predicted: Split -> probabilities that a trained model predicts, (n, classes).
      clean_list: File for the names of the images that are good.

    Raises:
      UserError: the set cannot be opened, or a file not be written.
    """
    start = time.perf_counter()
    store, named = sources.open_store(config.data)
    if clean_list is not None and not hasattr(store, "names"):
        raise UserError(
            f"--write-clean: the images of {config.data.source} are no files that "
            "data.include could name; leave it out"
        )
    loaded = _load(config, store, named)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from None
    splits = {name: source.indices for name, source in loaded.items()}
    scanned = scan(loaded["train"], splits, config.data.source)
    same = checks.find_equal(scanned)
    sound = loaded["train"].sound
    if sound is not None:
        sizes = checks.check_lengths(scanned, sound)
    else:
        sizes = checks.check_sizes(scanned, config.data, sized=sized)
    found = [
        *checks.check_remarks(store),
        *checks.check_files(scanned, config.data),
        *sizes,
        *checks.check_blank(scanned),
        *checks.check_duplicates(scanned, same),
        *checks.check_classes(scanned),
        *check_columns(loaded["train"]),
        *check_numbers(scanned, loaded["train"]),
        *check_placed(scanned, loaded["train"], config.data.max_bad_fraction),
        *check_boxes(scanned, loaded["train"], config.data),
    ]
    noise: dict[str, float] = {}
    if scanned.labels is not None and predicted is not None:
        doubtful, noise = check_labels(scanned, splits, predicted)
        found += doubtful
    diagnosis = Diagnosis(
        config=config,
        train=loaded["train"],
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
    """Return the names of the images that stay, one a line, for `data.include`.

    If a name has a line break, NUL separates the names instead.

    Args:
      store: Store with `names`, of which `names[index]` is the place of a file below
        the folder of the set, in bytes.
      scan: Scan of the set.
      left_out: Rows that do not stay.
    """
    kept = [
        os.fsencode(store.names[index])
        for row, index in enumerate(scan.index.tolist())
        if row not in left_out
    ]
    breaks = any(len(name.splitlines()) > 1 for name in kept)
    return b"".join(name + (b"\0" if breaks else b"\n") for name in kept)


def _load(config: Config, store: Store, named: NamedSplits) -> dict[str, Source]:
    """Return the splits as a run takes them.

    Raises:
      UserError: a run could not open them, either.
    """
    data = config.data
    if None in store.image_shape[:2] and data.image_size is None:
        data = dataclasses.replace(data, image_size=_ANY_SIZE)
    return sources.load_splits(data, config.seed, store, named).named()


def _write(path: Path, text: bytes) -> None:
    """Replace a file in one move.

    Raises:
      UserError: it cannot be written.
    """
    try:
        atomic_file.write(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
