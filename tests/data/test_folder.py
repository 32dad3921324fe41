"""Folders of images: classes, splits, lists of files to keep, and runs on them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.data import sampled
from jaxtrain.data.files import StoredFile
from jaxtrain.data.folder import open_folder
from jaxtrain.data.image_files import ImageFileStore
from jaxtrain.data.sources import Splits
from jaxtrain.errors import UserError
from jaxtrain.regular_file import check_folder
from tests.helpers.images import grey, load_images, read_all, write_folder
from tests.helpers.rows import each_row


def names(store: ImageFileStore) -> list[str]:
    return [os.fsdecode(store.names[i]) for i in range(len(store.names))]


def opened(root: Path, **fields) -> tuple[Any, Any]:
    source = f"folder:{root}"
    return open_folder(str(root), DataConfig(source=source, **fields))


def test_one_folder_a_class(tmp_path: Path):
    write_folder(tmp_path, {"b/2.png": 2, "a/10.PNG": 10, "b/1.png": 1, "c/x.png": 3})
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "a" / ".hidden.png").write_bytes(b"")
    (tmp_path / ".cache").mkdir()
    store, splits = opened(tmp_path)
    assert names(store) == ["a/10.PNG", "b/1.png", "b/2.png", "c/x.png"]
    assert store.target.tolist() == [0, 1, 1, 2] and store.target.dtype == np.int32
    assert store.facts["class_names"] == ("a", "b", "c")
    assert [*splits] == ["train"]
    source = load_images(
        source=f"folder:{tmp_path}",
        image_size=4,
        test_split="train",
        allow_overlap=True,
        validation_fraction=0,
    ).train
    assert source.image_shape == (4, 4, 3)
    assert sorted(read_all(source)["image"][:, 0, 0].tolist()) == [
        [v] * 3 for v in (1, 2, 3, 10)
    ]


def test_names_that_are_equal_in_unicode_are_one_class(tmp_path: Path):
    """macOS writes accents decomposed, other systems do not."""
    files = {"train/caf\xe9/1.png": 1, "train/z/2.png": 2, "val/cafe\u0301/3.png": 3}
    write_folder(tmp_path, files | {"val/z/4.png": 4})
    store, splits = opened(tmp_path)
    assert store.facts["class_names"] == ("caf\xe9", "z")
    assert sorted(store.target[splits["validation"][0]]) == [0, 1]
    (tmp_path / "kept").write_text(
        "train/caf\xe9/1.png\ntrain/z/2.png\nval/caf\xe9/3.png\n", encoding="utf-16"
    )
    store, splits = opened(tmp_path, include=str(tmp_path / "kept"))
    assert [len(splits[name][0]) for name in ("train", "validation")] == [2, 1]


def test_splits_of_a_folder(tmp_path: Path):
    files = {"train/a/1.png": 1, "train/b/2.png": 2, "train/b/3.png": 3}
    files |= {"valid/b/4.png": 4, "Test/a/5.png": 5, "Test/b/6.png": 6}
    write_folder(tmp_path, files)
    (tmp_path / "valid" / "a").mkdir()
    splits = load_images(source=f"folder:{tmp_path}", image_size=4, channels=1)
    assert splits.validation is not None
    for source, values, labels in (
        (splits.train, [1, 2, 3], [0, 1, 1]),
        (splits.validation, [4], [1]),
        (splits.test, [5, 6], [0, 1]),
    ):
        batch = read_all(source)
        found = zip(batch["image"][:, 0, 0, 0], batch["target"], strict=True)
        assert sorted(found) == [*zip(values, labels, strict=True)]


def test_the_digest_is_of_names_and_sizes(tmp_path: Path):
    files = {"a/1.png": 1, "b/2.png": 2}
    digests = []
    for place in ("here", "there"):
        write_folder(tmp_path / place, files)
        digests.append(opened(tmp_path / place)[0].facts["digest"])
    assert digests[0] == digests[1]
    for change in ("rename", "write"):
        path = tmp_path / "there" / "b" / "2.png"
        if change == "rename":
            path = path.rename(path.with_name("3.png"))
        else:
            write_folder(tmp_path / "there", {"b/2.png": 2})
            (tmp_path / "there" / "b" / "3.png").unlink()
            path.write_bytes(path.read_bytes() + b" ")
        digests.append(opened(tmp_path / "there")[0].facts["digest"])
    assert len(set(digests)) == 3


# --- data.include --------------------------------------------------------------------


@pytest.fixture
def six(tmp_path: Path) -> Path:
    write_folder(tmp_path / "set", {f"{c}/{i}.png": i for c in "ab" for i in range(3)})
    return tmp_path / "set"


def test_only_listed_files_are_kept(six: Path, tmp_path: Path):
    listed = tmp_path / "kept"
    for text in ("a/0.png\nb/2.png\n", "./b/2.png\r\n\na/0.png", "b/2.png\0a/0.png\0"):
        listed.write_text(text)
        store, _ = opened(six, include=str(listed))
        assert names(store) == ["a/0.png", "b/2.png"]
    assert store.facts["digest"] != opened(six)[0].facts["digest"]


@each_row(
    ("text", "message"),
    [
        ("a/0.png\na/1.jpg\nc/0.png", "lists 2 files .* not contain: a/1.jpg, c/0.png"),
        ("a/0.png", "1 class folders contain no image that data.include = .*: b"),
        ("\n\n", "lists no file"),
        (None, "No such file"),
    ],
)
def test_bad_lists(six: Path, tmp_path: Path, text: str | None, message: str):
    path = tmp_path / "kept"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        opened(six, include=str(path))


# --- what cannot be used -------------------------------------------------------------

Change = Callable[[Path], object]


def link(place: str, target: str) -> Change:
    return lambda root: (root / place).symlink_to(target)


LAYOUTS: dict[str, tuple[dict[str, int], Change | None, str]] = {
    "nothing": ({}, None, "does not exist \\(relative to"),
    "a file": ({}, lambda root: root.write_text(""), "is not a directory"),
    "an empty folder": ({}, Path.mkdir, "has no training image: expected CLASS/"),
    "no folders": (
        {"1.png": 1},
        None,
        "has no training image.*; other files: 1, such as 1.png",
    ),
    "one class": ({"a/1.png": 1}, None, "has only one class \\(a\\)"),
    "other endings": (
        {"a/1.pgn": 1, "b/2": 2},
        None,
        "other files: 2, such as a/1.pgn",
    ),
    "classes one folder deeper": (
        {"set/a/1.png": 1, "set/b/2.png": 2},
        None,
        "one class folder, set: .* subfolders are the classes, give folder:.*/set/set$",
    ),
    "a split twice": (
        {"train/a/1.png": 1, "train/b/2.png": 2, "val/a/1.png": 1, "valid/a/1.png": 1},
        None,
        "val and valid are both the validation split",
    ),
    "a class that training lacks": (
        {"train/a/1.png": 1, "train/b/2.png": 2, "test/c/3.png": 3},
        None,
        "the test split has classes that the training split lacks: c",
    ),
    "a link to a folder elsewhere": (
        {"a/1.png": 1, "b/2.png": 2},
        link("c", "../.."),
        "c resolves to .*, outside",
    ),
    "a link that leads nowhere": (
        {"a/1.png": 1, "b/2.png": 2},
        link("a/3.png", "4.png"),
        "a/3.png: No such file",
    ),
}


@each_row("case", LAYOUTS)
def test_what_cannot_be_used_is_named(case: str, tmp_path: Path):
    files, change, message = LAYOUTS[case]
    root = tmp_path / "set"
    write_folder(root, files)
    if change is not None:
        change(root)
    with pytest.raises(UserError, match=message):
        load_images(source=f"folder:{root}", image_size=4)


def test_all_that_cannot_be_used_is_told_at_once(tmp_path: Path):
    root = tmp_path / "set"
    write_folder(
        root, {"Training/a/1.png": 1, "Training/b/2.png": 2, "tset/a/3.png": 3}
    )
    write_folder(tmp_path, {f"elsewhere/{i}.png": i for i in range(7)})
    for i in range(7):
        path = root / "Training" / "a" / f"link{i}.png"
        path.symlink_to(tmp_path / "elsewhere" / f"{i}.png")
    os.mkfifo(root / "Training" / "b" / "pipe.png")
    (root / "Training" / "c").mkdir()
    (root / "Training" / "c" / "raw.cr2").write_bytes(b"raw")
    with pytest.raises(UserError) as caught:
        opened(root)
    told = str(caught.value)
    assert "10 problems" in told and told.count("->") == 4
    for text in (
        "next to Training there is tset, which is not a split",
        f"Training/a/link0.png resolves to {tmp_path}/elsewhere/0.png, outside",
        "and 2 more like these",
        "set data.allow_outside to True",
        "Training/b/pipe.png is not a regular file",
        "1 class folders contain no image: c (found 1 .cr2)",
    ):
        assert text in told, told
    assert "link5.png" not in told


def test_links_that_lead_outside_may_be_allowed(tmp_path: Path):
    write_folder(tmp_path, {"set/a/1.png": 1, "set/b/2.png": 2, "other/c/3.png": 3})
    (tmp_path / "set" / "a" / "9.png").symlink_to(tmp_path / "other" / "c" / "3.png")
    (tmp_path / "set" / "c").symlink_to(tmp_path / "other" / "c")
    store, _ = opened(tmp_path / "set", allow_outside=True)
    assert names(store) == ["a/1.png", "a/9.png", "b/2.png", "c/3.png"]
    files, _ = store.read(np.arange(4))
    assert files[1].data == files[3].data == grey(3)
    with pytest.raises(UserError, match="allow_outside = True has no effect with"):
        DataConfig(source="digits", allow_outside=True)


@each_row(
    ("train", "test", "valid"),
    [("Training", "Testing", "valid"), ("TRAIN", "TEST", "Val")],
)
def test_names_of_splits(tmp_path: Path, train: str, test: str, valid: str):
    files = {f"{s}/{c}/1.png": 1 for s in (train, test, valid) for c in "ab"}
    # An image that lies beside the classes makes a split no class.
    write_folder(tmp_path, files | {f"{train}/stray.png": 2})
    store, splits = opened(tmp_path)
    assert {name: len(shards[0]) for name, shards in splits.items()} == {
        "train": 2,
        "test": 2,
        "validation": 2,
    }
    (remark,) = store.remarks
    assert remark.text == f"1 images outside the class folders: {train}/stray.png"
    assert remark.serious


def test_what_is_passed_over_is_counted_by_ending(tmp_path: Path):
    write_folder(tmp_path, {"a/1.png": 1, "a/x/2.png": 2, "b/x/y/3.PNG": 3})
    write_folder(tmp_path, {"__MACOSX/a/1.png": 1, "b/@eaDir/1.png": 1})
    for name in ("a/1.cr2", "a/2.CR2", "b/x/notes.txt", "README", "a/.DS_Store"):
        (tmp_path / name).write_bytes(b"something")
    store, _ = opened(tmp_path)
    assert names(store) == ["a/1.png", "a/x/2.png", "b/x/y/3.PNG"]
    passed, nested = store.remarks
    assert passed.title == "passed over" and passed.serious
    assert passed.text == (
        "2 .cr2, 1 .txt, 1 without an extension; the folders __MACOSX, b/@eaDir; "
        "1 hidden"
    )
    assert nested.text.startswith("2 images lie in subfolders of class folders (")
    assert "a/x, b/x/y" in nested.text and not nested.serious
    # Folders of one name in several classes may be the classes that are meant.
    write_folder(tmp_path, {"b/x/4.png": 4})
    assert opened(tmp_path)[0].remarks[1].serious
    for name in ("a/1.cr2", "a/2.CR2"):
        (tmp_path / name).unlink()
    assert not opened(tmp_path)[0].remarks[0].serious


def test_links_inside_are_followed(tmp_path: Path):
    write_folder(tmp_path / "set", {"a/1.png": 1, "b/2.png": 2})
    (tmp_path / "set" / "a" / "3.png").symlink_to("../b/2.png")
    (tmp_path / "set" / "c").symlink_to("a")
    (tmp_path / "root").symlink_to("set")
    store, _ = opened(tmp_path / "root")
    assert names(store) == ["a/1.png", "a/3.png", "b/2.png", "c/1.png", "c/3.png"]
    files, _ = store.read(np.arange(5))
    same = (tmp_path / "set" / "b" / "2.png").read_bytes()
    assert [file.data == same for file in files] == [False, True, True, False, True]


@each_row(
    ("prefix", "place", "target"),
    [
        ("", "a/x", "../a"),
        ("", "x", "."),
        ("train/", "x", "../train"),
    ],
)
def test_a_link_to_a_folder_that_it_lies_in_is_passed_over(
    tmp_path: Path, prefix: str, place: str, target: str
):
    root = tmp_path / "set"
    write_folder(root, {f"{prefix}a/1.png": 1, f"{prefix}b/2.png": 2})
    (root / f"{prefix}{place}").symlink_to(target)
    (root / "self").symlink_to(".")
    store, _ = opened(root)
    assert names(store) == [f"{prefix}a/1.png", f"{prefix}b/2.png"]
    (remark,) = store.remarks
    assert remark.text.startswith("2 links to a parent folder: ")
    assert f"{prefix}{place}" in remark.text and not remark.serious


def test_links_that_meet_in_a_circle_end(tmp_path: Path):
    root = tmp_path / "set"
    write_folder(root, {"a/1.png": 1, "b/2.png": 2})
    (root / "a" / "b").symlink_to("../b")
    (root / "b" / "a").symlink_to("../a")
    assert names(opened(root)[0]) == ["a/1.png", "a/b/2.png", "b/2.png", "b/a/1.png"]
    check_folder(root)


def test_images_to_test_without_folders_of_classes_are_no_split(tmp_path: Path):
    files = {f"train/{c}/{i}.png": i for c in "ab" for i in range(9)}
    write_folder(tmp_path, {**files, "test/1.png": 1, "test/2.png": 2})
    store, splits = opened(tmp_path)
    assert [*splits] == ["train"] and len(names(store)) == len(files)
    (remark,) = store.remarks
    assert "2 images outside the class folders: test/1.png, test/2.png" in remark.text


@pytest.mark.plugins
def test_images_of_one_size_need_no_size(tmp_path: Path):
    from jaxtrain.plugins.packed.writer import pack

    write_folder(tmp_path / "set", {f"{c}/{i}.png": i for c in "ab" for i in range(9)})
    fields: dict[str, Any] = {"source": f"folder:{tmp_path / 'set'}", "channels": 1}
    splits = load_images(**fields)
    assert splits.input_shape == (6, 4, 1)
    for source in splits.named().values():
        batch = read_all(source)["image"]
        assert batch.shape[1:] == (6, 4, 1) and (batch == batch[:, :1, :1]).all()
    # The host cuts windows of files; of one size they may be on the device, too.
    augment = AugmentConfig(random_resized_crop=True)
    cut = load_images(**fields, image_size=4, cache="device", augment=augment)
    assert cut.input_shape == (4, 4, 1) and cut.train.image_shape == (6, 4, 1)
    index = pack(DataConfig(**fields), tmp_path / "packed", format="raw")
    assert index.image_shape == (6, 4, 3)
    (tmp_path / "set" / "a" / "9.png").write_bytes(grey(9, 5, 4))
    with pytest.raises(UserError, match=r"differ in size: set data\.image_size"):
        load_images(**fields)
    with pytest.raises(UserError, match="of one size: give --size"):
        pack(DataConfig(**fields), tmp_path / "no", format="raw")


def test_an_image_of_another_size_that_was_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_folder(tmp_path, {f"{c}/{i}.png": i for c in "ab" for i in range(9)})
    monkeypatch.setattr(sampled, "NUM_HEADERS", 2)
    (tmp_path / "b" / "8.png").write_bytes(grey(9, 5, 4))
    unreadable = []
    for source in load_images(source=f"folder:{tmp_path}").named().values():
        source.read(np.arange(len(source)), unreadable=unreadable)
    assert [bad.reason for bad in unreadable] == [
        "the image has 4x5 pixels, expected 4x6"
    ]


def test_what_becomes_of_a_file_meanwhile_is_told(tmp_path: Path):
    write_folder(tmp_path, {f"{c}/{i}.png": i for c in "ab" for i in range(3)})
    store, _ = opened(tmp_path)
    (tmp_path / "a" / "0.png").unlink()
    (tmp_path / "a" / "1.png").unlink()
    os.mkfifo(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").unlink()
    (tmp_path / "a" / "2.png").mkdir()
    reasons = [f.data.strerror for f in store.read(np.arange(3))[0]]
    assert reasons[:2] == ["No such file or directory", "it is not a regular file"]
    assert reasons[2] in ("Is a directory", "it is not a regular file")


def test_slices_have_files_of_all_classes(tmp_path: Path):
    write_folder(tmp_path, {f"{c}/{i}.png": i for c in "abc" for i in range(40)})
    fields: dict[str, Any] = {"source": f"folder:{tmp_path}", "image_size": 8}
    parts: dict[str, Any] = {"train_split": "train[:70%]", "test_split": "train[70%:]"}
    splits = load_images(validation_fraction=0, **fields, **parts)
    counts = [np.bincount(s.strata()).tolist() for s in (splits.train, splits.test)]
    assert np.sum(counts, axis=0).tolist() == [40, 40, 40]
    assert min(map(min, counts)) >= 5
    # Each label is that of its own image: the folder tells.
    files, label = splits.train.store.read(splits.train.indices)
    folders = [Path(f.name).parent.name for f in files if isinstance(f, StoredFile)]
    assert folders == ["abc"[n] for n in label]


def test_slices_of_a_set_in_the_order_of_its_classes_are_refused(tmp_path: Path):
    label = np.repeat(np.arange(4), 10)
    np.savez(tmp_path / "set.npz", image=np.zeros((40, 8, 8), np.uint8), label=label)
    with pytest.raises(UserError, match="lacks 1 class of the test split"):
        load_images(
            source=f"arrays:{tmp_path}/set.npz",
            train_split="train[:75%]",
            test_split="train[75%:]",
        )


def test_a_file_that_goes_moves_no_other_into_another_split(tmp_path: Path):
    write_folder(tmp_path, {f"{c}/{i}.png": i for c in "ab" for i in range(50)})
    fields: dict[str, Any] = {"source": f"folder:{tmp_path}", "image_size": 8}
    before = held_out(load_images(**fields))
    (tmp_path / "a" / "7.png").unlink()
    after = held_out(load_images(**fields))
    for name in ("test", "validation"):
        # At most one in, one out: the parts are of a round number.
        assert len(before[name] - after[name]) <= 2
        assert len(after[name] - before[name]) <= 2


def held_out(splits: Splits) -> dict[str, set[str]]:
    names = {}
    for name, source in splits.named().items():
        files, _ = source.store.read(source.indices)
        names[name] = {f.name for f in files if isinstance(f, StoredFile)}
    return names
