"""Tables that list images: labels, splits, and every line that cannot be used."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import DataConfig
from jaxtrain.data.csv_list import open_csv
from jaxtrain.errors import UserError
from tests.helpers.images import grey, load_images, read_all, write_folder
from tests.helpers.rows import each_row

FILES = {"a/1.png": 1, "a/2.png": 2, "b/3.png": 3, "b/4.png": 4, "b/5.png": 5}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_folder(tmp_path / "set", FILES)
    return tmp_path / "set"


def opened(root: Path, text: str | bytes, **fields: Any) -> tuple[Any, Any]:
    path = root / "list.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_csv(str(path), DataConfig(source=f"csv:{path}", **fields))


TABLE = """label, note ,path,split
dog,,a/1.png,train
cat,"two
lines",./b//3.png,train

dog,x,a/2.png,Val
cat,x,b/4.png,test
"""


def test_columns_in_any_order(root: Path):
    path = root / "list.csv"
    path.write_text(TABLE)
    splits = load_images(source=f"csv:{path}", image_size=4, channels=1)
    assert splits.validation is not None
    for source, value, label in (
        (splits.train, [1, 3], [1, 0]),
        (splits.validation, [2], [1]),
        (splits.test, [4], [0]),
    ):
        batch = read_all(source)
        assert batch["image"][:, 0, 0, 0].tolist() == value
        assert batch["target"].tolist() == label
    assert splits.train.facts["class_names"] == ("cat", "dog")


@each_row(
    ("labels", "expected"),
    [
        (("10", "9", " 100 "), ("9", "10", "100")),
        (("10", "9", "09"), ("09", "10", "9")),
        (("1", "0", "9" * 5000), ("0", "1", "9" * 5000)),
        (("b", "B", "é"), ("B", "b", "é")),
    ],
)
def test_labels_are_numbers_or_names(
    root: Path, labels: tuple[str, ...], expected: tuple[str, ...]
):
    paths = [*FILES]
    rows = [f"{path},{label}" for path, label in zip(paths, labels, strict=False)]
    store, splits = opened(root, "\n".join(["path,label", *rows]))
    assert store.facts["class_names"] == expected
    names = [expected[i] for i in store.target]
    assert names == [label.strip() for label in labels]
    assert [len(shard) for shard in splits["train"]] == [3]


@each_row(
    ("text", "remark"),
    [
        # A mark of the byte order, CR LF, and no line break at the end.
        (b"\xef\xbb\xbfpath,label\r\na/1.png,x\r\nb/3.png,K\xc3\xa4fer", ""),
        ("path\tlabel\na/1.png\tx\nb/3.png\tKäfer\n".encode("utf-16"), ""),
        (b"path;label\na/1.png;x\nb/3.png;K\xe4fer\n", "encoding of list.csv: cp1252"),
        ("sep=;\r\nPath;Label\r\na/1.png;x\r\nb/3.png;Käfer\r\n;\r\n;\r\n", ""),
        ("path,label\na\\1.png,x\nb\\3.png,Ka\u0308fer\n", ""),
        ("file_name,label\na/1.png,x\nb/3.png,Käfer", "files: column file_name"),
        (
            "image,filepath,label\n1,a/1.png,x\n2,b/3.png,Käfer",
            "files: column filepath, and not image",
        ),
    ],
)
def test_tables_of_other_programs(root: Path, text: str | bytes, remark: str):
    store, _ = opened(root, text)
    assert store.target.tolist() == [1, 0]
    assert store.facts["class_names"] == ("Käfer", "x")
    assert [store.names[i] for i in range(2)] == [b"a/1.png", b"b/3.png"]
    told = [f"{remark.title}: {remark.text}" for remark in store.remarks]
    assert "; ".join(told).startswith(remark) and len(told) == bool(remark)


@each_row(
    ("on_disk", "listed"),
    [
        ("k\xe4.png".encode(), "ka\u0308.png".encode()),
        ("ka\u0308.png".encode(), "k\xe4.png".encode()),
        ("k\xe4.png".encode(), b"k\xe4.png"),
        (b"k\xe4.png", b"k\xe4.png"),
        ("ka\u0308.png".encode(), b"k\xe4.png"),
    ],
)
def test_names_that_the_disk_spells_otherwise(
    tmp_path: Path, on_disk: bytes, listed: bytes
):
    write_folder(tmp_path, {"a/1.png": 1})
    (tmp_path / os.fsdecode(on_disk)).write_bytes(grey(2))
    table = b"path,label\na/1.png,x\n%b,y\n"
    store, _ = opened(tmp_path, table % listed)
    assert store.names[1] == on_disk
    (tmp_path / "kept").write_bytes(b"a/1.png\n" + listed)
    store, _ = opened(tmp_path, table % listed, include=str(tmp_path / "kept"))
    assert len(store.names) == 2


def test_columns_of_numbers_are_named_where_there_is_no_label(root: Path):
    text = "filename;cat;note;weight\na/1.png;1;x;0,5\nb/3.png;;y;1,25\n"
    with pytest.raises(UserError, match=r"--data\.targets cat weight \("):
        opened(root, text)
    store, _ = opened(root, text, targets=("cat", "weight"))
    expected = np.array([[1, 0.5], [np.nan, 1.25]], np.float32)
    np.testing.assert_array_equal(store.target, expected)
    with pytest.raises(UserError, match="line 2: weight is '1,2,3'"):
        opened(root, text.replace("0,5", "1,2,3"), targets=("cat", "weight"))


def test_names_of_any_bytes(root: Path):
    name = b"a/\xff\n.png"
    with open(os.path.join(os.fsencode(root), name), "wb") as file:
        file.write(grey(9))
    store, _ = opened(root, b'path,label\n"%b",x\nb/3.png,y' % name)
    files, _ = store.read(np.arange(2))
    assert files[0].data == grey(9) and files[0].name.endswith("a/\\xff\\n.png")


def test_the_digest_is_of_all_that_counts(root: Path):
    tables = ["a/1.png,x,train\nb/3.png,y,train"]
    tables += ["b/3.png,y,train\na/1.png,x,train", "a/1.png,y,train\nb/3.png,x,train"]
    tables += ["a/1.png,x,train\nb/3.png,y,train\nb/4.png,y,train"]
    tables += ["a/1.png,x,train\nb/3.png,y,train\nb/4.png,y,test"]
    digests = [
        opened(root, f"path,label,split\n{text}")[0].facts["digest"] for text in tables
    ]
    assert len(set(digests)) == len(tables)


GOOD = "path,label\na/1.png,x\nb/3.png,y\n"


@each_row(
    ("text", "message"),
    [
        ("", "line 1: expected a header .* no column 'path': ''"),
        ("path;label\na/1.png;x\n", "has only one class .x"),
        ("path,label,label\n", "has 'label' twice"),
        (b"PK\x03\x04", "the file is a ZIP file"),
        ("path,label\n", "lists no image"),
        (GOOD + "a/2.png\n", "line 4: 1 fields, but 2 columns"),
        (GOOD + '"a/2.png,x\n', "line 4: unexpected end of data"),
        (GOOD + "a/\0.png,x\n", r"line 4: a/\\x00.png: .*embedded null"),
        (GOOD + "b,x\n", "line 4: b is not a regular file"),
        (GOOD + "a/../../x,x\n", r"line 4: a/\.\./\.\./x is outside"),
        (GOOD + ".,x\n", r"line 4: \. is not a file"),
        ("path,label,split\na/1.png,x,trian\n", "line 2: the split 'trian' is unknown"),
        (
            "path,label,split\na/1.png,x,test\nb/3.png,y,test",
            "has the splits test, but no split `train`",
        ),
        (
            "path,label,split\na/1.png,x,train\nb/3.png,y,train\nb/4.png,z,val",
            "the validation split has classes .* lacks: z",
        ),
    ],
)
def test_what_cannot_be_used_is_named(root: Path, text: str | bytes, message: str):
    with pytest.raises(UserError, match=message):
        opened(root, text)


def test_all_lines_that_cannot_be_used_are_told_at_once(root: Path):
    text = GOOD + "a/9.png,x\n/etc/passwd,x\n,x\na/1.png,y\n"
    text += "".join(f"../{i}.png,x\n" for i in range(9))
    with pytest.raises(UserError) as caught:
        opened(root, text)
    told = str(caught.value)
    assert "13 problems" in told and "and 5 more like these" in told
    for line, what in ((4, "a/9.png: No such file"), (6, "the path is empty")):
        assert f"  line {line}: {what}" in told, told
    assert (
        "line 5: /etc/passwd is outside" in told
        and "line 7: a/1.png is already in" in told
    )
    assert "data.allow_outside" in told


def test_paths_from_the_root_of_the_disk(root: Path, tmp_path: Path):
    """Those into the folder of the table are as good as others."""
    (tmp_path / "c.png").write_bytes(grey(7))
    inside = f"path,label\n{root}/a/1.png,x\n{root}/./b/3.png,y\n"
    store, _ = opened(root, inside)
    assert [store.names[i] for i in range(2)] == [b"a/1.png", b"b/3.png"]
    outside = inside + f"{tmp_path}/c.png,x\n../set/b/4.png,y\n"
    with pytest.raises(UserError, match="2 problems"):
        opened(root, outside)
    store, _ = opened(root, outside, allow_outside=True)
    files, _ = store.read(np.arange(4))
    assert files[2].data == grey(7) and files[3].data == grey(4)


def test_numbers_to_predict_are_no_classes(root: Path):
    write_folder(root, {f"c/{i}.png": i for i in range(30)})
    rows = [f"c/{i}.png" for i in range(30)]
    text = "path;label\n" + "".join(f"{row};{i / 8}\n" for i, row in enumerate(rows))
    for table in (text, text.replace(".", ",").replace(",png", ".png")):
        with pytest.raises(UserError, match=r"like numbers .*: 30 .* from 0 to 3\.625"):
            opened(root, table)
    # As many as rows are no classes either, however few they are.
    with pytest.raises(UserError, match=r"like numbers .*: 12 .* in 12 rows"):
        opened(root, "\n".join(text.splitlines()[:13]))
    # Whole numbers may be the names of classes, and so may a few versions.
    whole = "path,label\n" + "".join(f"{row},{i}\n" for i, row in enumerate(rows))
    few = "path,label\n" + "".join(f"{r},{i % 4}.5\n" for i, r in enumerate(rows))
    assert opened(root, whole)[0].facts["num_classes"] == 30
    assert opened(root, few)[0].facts["num_classes"] == 4


# --- targets of several numbers ------------------------------------------------------


def test_lists_of_labels(root: Path):
    """A list in the column label becomes columns of 0 and 1, grouped by label."""
    text = "path,label\na/1.png,dog; cat\na/2.png,\nb/3.png,cat;\n"
    store, _ = opened(root, text, label_separator=";")
    rows = [[1, 1], [0, 0], [1, 0]]
    assert store.read(np.arange(3))[1].tolist() == rows
    assert store.facts["target_names"] == ("cat", "dog")
    assert store.strata(np.arange(3)).tolist() == np.array(rows, bool).tolist()


@each_row(
    ("targets", "text", "message"),
    [
        (("dgo",), "path,dog\na/1.png,1\n", "no column 'dgo'.*perhaps you meant dog"),
        (("dog",), "path,dog\na/1.png,yes\n", "line 2: dog is 'yes'.*give a number"),
    ],
)
def test_what_is_no_column(
    root: Path, targets: tuple[str, ...], text: str, message: str
):
    with pytest.raises(UserError, match=f"(?s){message}"):
        opened(root, text, targets=targets)
