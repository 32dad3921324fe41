"""Preparing TFDS sets: what is checked before anything is downloaded."""

import hashlib
import importlib.util
import json
import shutil
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets
from tensorflow_datasets.core.dataset_builder import DatasetBuilder

from jaxtrain import extras
from jaxtrain.config import DataConfig
from jaxtrain.data.tfds import open_tfds
from jaxtrain.errors import UserError
from jaxtrain.plugins.doctor.tfds_prepare import prepare, trust_manual_files
from tests.helpers.rows import each_row

INSTALL = extras.install("tfds-prepare")


@pytest.fixture
def with_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let TensorFlow seem to be there."""
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: ModuleSpec(name, None, origin=name)
    )


@pytest.fixture
def without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@each_row("source", ["digits", "synthetic:8x8x1/2", "tfds:", "mnist"])
def test_only_tfds_sets_are_prepared(source: str, tmp_path: Path):
    with pytest.raises(UserError, match="expected a TFDS data set"):
        prepare(source, data_dir=tmp_path)


@pytest.mark.slow
def test_prepared_sets_are_left_alone(fashion_mnist_dir: str, without_tensorflow: None):
    path = prepare("tfds:fashion_mnist", data_dir=fashion_mnist_dir)
    assert path.parent == Path(fashion_mnist_dir) / "fashion_mnist"
    assert (path / "dataset_info.json").is_file()


def test_missing_tensorflow_names_the_extra(tmp_path: Path, without_tensorflow: None):
    with pytest.raises(UserError) as caught:
        prepare("tfds:mnist", data_dir=tmp_path)
    assert str(caught.value) == f"preparing tfds:mnist needs TensorFlow: {INSTALL}"


def test_missing_manual_dir(tmp_path: Path):
    with pytest.raises(UserError, match=r"--manual-dir .*nowhere: no such directory"):
        prepare("tfds:mnist", data_dir=tmp_path, manual_dir=tmp_path / "nowhere")


def test_failed_download_gives_the_cause_and_the_way_round(
    tmp_path: Path, with_tensorflow: None, monkeypatch: pytest.MonkeyPatch
):
    def fail(self: object, *, download_config: object) -> None:
        raise ConnectionError("cannot resolve example.org")

    monkeypatch.setattr(DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(UserError) as caught:
        prepare("tfds:mnist", data_dir=tmp_path)
    assert "ConnectionError: cannot resolve example.org" in str(caught.value)
    assert "--manual-dir" in str(caught.value)


def test_unknown_version_and_config_fail_with_the_cause(
    tmp_path: Path, with_tensorflow: None
):
    with pytest.raises(UserError, match=r"only: 3\.0\.1"):
        prepare("tfds:mnist:9.9.9", data_dir=tmp_path)
    with pytest.raises(UserError, match="nonsense not found"):
        prepare("tfds:imagenet_v2/nonsense", data_dir=tmp_path)


def test_options_of_the_download(
    tmp_path: Path, with_tensorflow: None, monkeypatch: pytest.MonkeyPatch
):
    seen = []

    def record(self: DatasetBuilder, *, download_config: object) -> None:
        seen.append((self.info.file_format, download_config))

    monkeypatch.setattr(DatasetBuilder, "download_and_prepare", record)
    path = prepare("tfds:mnist", data_dir=tmp_path, manual_dir=tmp_path)
    assert path == tmp_path / "mnist" / "3.0.1"
    ((file_format, config),) = seen
    assert file_format.value == "array_record"
    assert config.manual_dir == tmp_path
    # They overwrite TFDS's record, or fetch files that have no random access.
    assert not config.register_checksums
    assert not config.try_download_gcs


def test_manual_files_stand_for_downloads_in_memory_only(tmp_path: Path):
    builder: Any = tensorflow_datasets.builder("fashion_mnist", data_dir=str(tmp_path))
    recorded = dict(builder.url_infos)
    package = Path(tensorflow_datasets.__file__).parent
    record = package / "url_checksums" / "fashion_mnist.txt"
    on_disk = record.read_bytes()
    name = "t10k-labels-idx1-ubyte.gz"
    (tmp_path / name).write_bytes(b"other bytes")
    try:
        assert trust_manual_files(builder, tmp_path) == [name]
        changed = {u for u in recorded if builder.url_infos[u] != recorded[u]}
        (url,) = changed
        assert url.endswith(name)
        digest = hashlib.sha256(b"other bytes").hexdigest()
        assert builder.url_infos[url].checksum == digest
        assert trust_manual_files(builder, tmp_path) == []
    finally:
        builder.url_infos.update(recorded)
    assert record.read_bytes() == on_disk


@pytest.mark.slow
def test_tfrecord_is_to_be_prepared_again(fashion_mnist_dir: str, tmp_path: Path):
    prepared = prepare("tfds:fashion_mnist", data_dir=fashion_mnist_dir)
    copy = tmp_path / "fashion_mnist" / prepared.name
    copy.mkdir(parents=True)
    for path in prepared.glob("*.json"):
        shutil.copy(path, copy)
    info = json.loads((copy / "dataset_info.json").read_text())
    info["fileFormat"] = "tfrecord"
    (copy / "dataset_info.json").write_text(json.dumps(info))
    config = DataConfig(source="tfds:fashion_mnist", data_dir=str(tmp_path))
    for attempt in (
        lambda: open_tfds("fashion_mnist", config),
        lambda: prepare("tfds:fashion_mnist", data_dir=tmp_path),
    ):
        with pytest.raises(UserError, match="as tfrecord") as caught:
            attempt()
        command = "python main.py data --prepare tfds:fashion_mnist --data-dir DIR"
        assert command in str(caught.value)
        assert INSTALL in str(caught.value)
