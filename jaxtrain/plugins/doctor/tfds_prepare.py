"""Preparation of TFDS data sets, which requires TensorFlow; reading them does not."""

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

from absl import logging

from jaxtrain import extras
from jaxtrain.data.tfds import FILE_FORMAT, PathLike, data_folder, find
from jaxtrain.errors import UserError


def prepare(
    source: str, *, data_dir: PathLike | None = None, manual_dir: PathLike | None = None
) -> Path:
    """Download and prepare `tfds:NAME` as array_record files; return their directory.

    Args:
      source: Data set, such as tfds:mnist. A prepared data set is left unchanged.
      data_dir: Directory of TFDS data sets. Defaults to $TFDS_DATA_DIR, else
        ~/tensorflow_datasets.
      manual_dir: Directory of manually downloaded files with their original names.

    Raises:
      UserError: `source` is not a TFDS data set, `manual_dir` or TensorFlow is
        missing, or the preparation fails.
    """
    kind, _, name = source.partition(":")
    if kind != "tfds" or not name:
        raise UserError(
            f"--prepare {source!r}: expected a TFDS data set, such as tfds:mnist"
        )
    if manual_dir is not None and not Path(os.path.expanduser(manual_dir)).is_dir():
        raise UserError(f"--manual-dir {manual_dir}: no such directory")
    builder = find(name, data_dir)
    if builder is None:
        if extras.missing("tensorflow"):
            command = extras.install("tfds-prepare")
            raise UserError(f"preparing {source} needs TensorFlow: {command}")
        try:
            builder = _download_and_prepare(name, data_dir, manual_dir)
        except (
            Exception
        ) as error:  # Errors of the data set's code, the network or the disk.
            raise UserError(
                f"preparing {source} failed: {type(error).__name__}: {error}\nWithout "
                "a network, download the files of the data set elsewhere, and give "
                "their directory with --manual-dir"
            ) from error
    return Path(builder.data_dir)


def trust_manual_files(builder: Any, manual_dir: PathLike) -> list[str]:
    """Make TFDS accept manually downloaded files with other checksums.

    TFDS rejects files whose checksums differ from the recorded checksums, such as
    recompressed files. Its `register_checksums` overwrites the recorded checksums in
    the installed package, so that TFDS then rejects the original files. This function
    changes the recorded checksums only in memory.

    Returns:
      Names of the files whose checksums differ.
    """
    different = []
    for url, recorded in (builder.url_infos or {}).items():
        path = Path(os.path.expanduser(manual_dir)) / (recorded.filename or "")
        if path.is_file():
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            size = path.stat().st_size
            actual = dataclasses.replace(recorded, size=size, checksum=checksum)
            builder.url_infos[url] = actual
            if actual != recorded:
                different.append(path.name)
    return different


def _download_and_prepare(
    name: str, data_dir: PathLike | None, manual_dir: PathLike | None
) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.set_verbosity(logging.ERROR)
    import tensorflow_datasets as tfds

    folder = data_folder(data_dir)
    builder = tfds.builder(name, data_dir=folder, file_format=FILE_FORMAT)
    if manual_dir is not None:
        manual_dir = Path(os.path.expanduser(manual_dir))
        if different := trust_manual_files(builder, manual_dir):
            print(
                f"{manual_dir}: these files are used although their checksums differ "
                f"from TFDS's record: {', '.join(different)}"
            )
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(
            # None defaults to data_dir/downloads/manual.
            manual_dir=manual_dir,
            # The data sets in Google's bucket are tfrecord, not array_record files.
            try_download_gcs=False,
        )
    )
    return builder
