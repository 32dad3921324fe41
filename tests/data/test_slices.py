"""Slices of splits mean what they mean in TFDS, whatever the source."""

from typing import Any

import numpy as np
import pytest
from tensorflow_datasets.core import splits as tfds_splits
from tensorflow_datasets.core.naming import ShardedFileTemplate

from jaxtrain.data.slices import select
from jaxtrain.errors import UserError
from tests.helpers.images import load_images
from tests.helpers.rows import each_row

# Lengths of the shards of each split; 97 and 250 examples make percents round.
SHARDS = {"train": [40, 0, 50, 7], "test": [13], "extra-1": [100, 100, 50]}


def reference(text: str) -> list[tuple[str, int]]:
    """Return the file and the place there of each example, as TFDS reads them."""
    infos = [
        tfds_splits.SplitInfo(
            name=name,
            shard_lengths=lengths,
            num_bytes=0,
            filename_template=ShardedFileTemplate(
                dataset_name="tiny",
                data_dir="/nowhere",  # type: ignore[arg-type]
                split=name,
                filetype_suffix="array_record",
            ),
        )
        for name, lengths in SHARDS.items()
    ]
    files: Any = tfds_splits.SplitDict(infos)[text].file_instructions
    return [
        (file.filename.rpartition("/")[2], place)
        for file in files
        for place in range(file.skip, file.skip + file.take)
    ]


def ours(text: str) -> list[tuple[str, int]]:
    """Return the same, from a store that holds all splits one after the other."""
    places, splits = [], {}
    for name, lengths in SHARDS.items():
        splits[name] = []
        for number, length in enumerate(lengths):
            file = f"tiny-{name}.array_record-{number:05}-of-{len(lengths):05}"
            splits[name].append(len(places) + np.arange(length))
            places += [(file, place) for place in range(length)]
    return [places[i] for i in select(text, splits, "tiny")]


@each_row(
    "text",
    [
        "train",
        "train[12.5%:37.5%]",
        "train[1_0:]",
        "train[-97:97]",
        "train[:-2shard]",
        "extra-1[:-1shard]+train[-2shard:]",
        "train+test",
        "train[:3] + train[:3]",
        "all",
        "all+test[:2]",
    ],
)
def test_texts_of_tfds(text: str):
    assert ours(text) == reference(text)


def test_random_slices():
    rng = np.random.default_rng(0)

    def slice_of(name: str) -> str:
        unit = str(rng.choice(["", "%", "%", "shard"]))
        size = {"": sum(SHARDS[name]), "%": 100, "shard": len(SHARDS[name])}[unit]
        low, high = sorted(rng.uniform(0, size, 2))
        if unit != "%" or rng.random() < 0.5:
            low, high = int(low), int(high) + 1
        # Counted from the end, of each bound by itself.
        low, high = (b - size if rng.random() < 0.3 else b for b in (low, high))
        low, high = (round(float(b), 3) if unit == "%" else b for b in (low, high))
        first = "" if rng.random() < 0.2 else f"{low}{unit}"
        return f"{name}[{first}:{high}{unit}]"

    compared = 0
    for _ in range(500):
        names = rng.choice(list(SHARDS), rng.integers(1, 4))
        text = "+".join(map(slice_of, names))
        try:
            expected = reference(text)
        except ValueError:
            with pytest.raises(UserError):
                ours(text)
            continue
        if expected:
            assert ours(text) == expected, text
            compared += 1
    assert compared > 300


@each_row(
    ("text", "reason"),
    [
        ("", "'' is not a split"),
        ("trian[:10]", "the split 'trian' does not exist"),
        ("train[:]", r"'train\[:\]' is not a slice"),
        ("train[5]", r"'train\[5\]' is not a slice"),
        ("train[1.5:]", "'1.5' in .* nor a percentage"),
        ("train[1:2:3]", "is not a split"),
        ("train[:98]", "exceeds the 97 examples"),
        ("train[:101%]", "exceeds 100 %"),
    ],
)
def test_what_tfds_refuses_is_refused(text: str, reason: str):
    with pytest.raises((ValueError, NotImplementedError)):
        reference(text)
    known = r"expected train, test, extra-1, or slices .* train\[:90%\]"
    with pytest.raises(UserError, match=f"{reason}; {known}"):
        ours(text)


@each_row("text", ["train[5:5]", "train[0%:0.1%]", "train[50:40]"])
def test_a_slice_without_examples_is_refused(text: str):
    with pytest.raises(UserError, match="of tiny is empty"):
        ours(text)


# --- splits that share examples ------------------------------------------------------


@each_row(
    ("fields", "message"),
    [
        (
            {"validation_split": "train"},
            "data.train_split = 'train' and data.validation_split = 'train' share 1437",
        ),
        (
            {"train_split": "train[:90%]", "validation_split": "train[80%:]"},
            r"'train\[:90%\]' and data.validation_split = 'train\[80%:\]' share 143 ",
        ),
        (
            {"train_split": "train+train"},
            r"'train\+train' and data.validation_fraction = 0.1 share",
        ),
    ],
)
def test_splits_that_share_examples_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(UserError, match=f"{message}.*data.allow_overlap"):
        load_images(**fields)
    assert len(load_images(**fields, allow_overlap=True).train) > 1000


def test_allowing_what_does_not_happen_is_refused():
    with pytest.raises(UserError, match="allow_overlap = True has no effect"):
        load_images(allow_overlap=True)
