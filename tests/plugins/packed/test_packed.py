"""Packed data: what is read is what was packed; nothing half, damaged or hostile."""

import hashlib
import io
import json
import os
import pickle
import re
import resource
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jaxtrain import own, system_errors
from jaxtrain.cli import main
from jaxtrain.config import DataConfig
from jaxtrain.data import SOURCES, opening
from jaxtrain.data.files import StoredFile
from jaxtrain.data.stores import ArrayStore
from jaxtrain.errors import UserError
from jaxtrain.plugins.packed import shard, writer
from jaxtrain.plugins.packed.convert import Form
from tests.helpers.images import Example, encode, load_images, read_all, write_tfds
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.words import quoted


def photograph(seed: int, height: int, width: int, format: str = "JPEG") -> bytes:
    """Return an image file with structure, so that another filter would show."""
    draws = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    image = Image.fromarray(draws).resize((width, height), Image.Resampling.BICUBIC)
    return encode(np.asarray(image), format)


def examples(num: int, seed: int = 0) -> list[Example]:
    return [(photograph(seed + i, 12, 10), i % 3) for i in range(num)]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A set whose images all have 12x10 pixels."""
    splits = {"train": examples(40), "test": examples(12, 100), "extra": examples(3, 9)}
    write_tfds(tmp_path / "tfds", splits, (12, 10, 3))
    return tmp_path / "tfds"


def pack(source: str, out: Path, data_dir: Path | None = None, **how: Any) -> None:
    folder = None if data_dir is None else str(data_dir)
    writer.pack(DataConfig(source=source, data_dir=folder), out, **how)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FILES_A_SHARD", 16)
    monkeypatch.setattr(writer, "RAW_SHARD_BYTES", 16 * 12 * 10 * 3)
    monkeypatch.setattr(shard, "CHUNK", 5)


RUN = recipe(
    data='DataConfig(source="tfds:tiny", batch_size=8, validation_fraction=0.2)',
    model='ConvNetConfig(name="convnet", width=0.25)',
    train="TrainConfig(steps=6)",
    checkpoint="CheckpointConfig(every_steps=6)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)


@pytest.mark.slow
def test_a_run_on_packed_data_is_the_same_to_the_last_bit(tiny: Path, tmp_path: Path):
    """Streamed with random crops, or at the stored size from the device."""
    config = write_recipe(tmp_path / "run.py", RUN)
    for format in ("jpeg", "raw"):
        command = f"data --pack tfds:tiny --data-dir {quoted(tiny)} --format {format}"
        assert main([*shlex.split(command), "--out", str(tmp_path / format)]) == 0
    crop = "--data.image-size 8 --data.augment.random-resized-crop True"
    for forms, words in ((("jpeg", "raw"), ""), (("jpeg",), crop)):
        runs = {"original": f"--data.data-dir {quoted(tiny)}"}
        runs |= {
            form: f"--data.source packed:{quoted(tmp_path / form)}" for form in forms
        }
        lines, results = [], []
        for name, source in runs.items():
            workdir = tmp_path / f"{name} {bool(words)}"
            command = f"--config {quoted(config)} {source} {words} --workdir"
            assert main([*shlex.split(command), str(workdir)]) == 0
            lines.append([line["loss"] for line in read_lines(workdir, "train")])
            results.append(read_summary(workdir)["eval"])
        assert len(lines[0]) == 6
        assert all(other == lines[0] for other in lines)
        assert all(other == results[0] for other in results)


def test_splits_classes_and_names_are_those_of_the_source(tiny: Path, tmp_path: Path):
    pack("tfds:tiny", tmp_path / "p", data_dir=tiny)
    original: dict[str, Any] = {"source": "tfds:tiny", "data_dir": str(tiny)}
    packed: dict[str, Any] = {"source": f"packed:{tmp_path / 'p'}"}
    for split in ("train", "extra", "train[10:30]+extra", "test[-5:]", "all"):
        fields: dict[str, Any] = {
            "train_split": split,
            "test_split": "test[:1]",
            "validation_fraction": 0.0,
            "allow_overlap": split == "all",
        }
        one = load_images(**original, **fields).train
        other = load_images(**packed, **fields).train
        assert one.facts == other.facts and one.image_shape == other.image_shape
        assert (one.strata() == other.strata()).all()
        assert one.strata().dtype == other.strata().dtype
        for indices in (np.arange(len(one)), np.array([len(one) - 1, 0, 0])):
            ours, theirs = one.read(indices), other.read(indices)
            assert (ours["image"] == theirs["image"]).all()
            assert (ours["target"] == theirs["target"]).all()
    # 40 images in shards of 16, each a shard of TFDS's syntax.
    assert len(load_images(**packed, train_split="train[2shard]").train) > 0
    store, splits = opening.open_store(DataConfig(**packed))
    assert [len(s) for s in splits["train"]] == [16, 16, 8]
    (file,) = pickle.loads(pickle.dumps(store)).read(np.array([39]))[0]
    assert file.name == f"split 'train' of packed:{tmp_path / 'p'}: image 39"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Images of several formats and sizes: 4 that are large, 2 that are not."""
    train = [
        (photograph(0, 40, 60), 0),
        (photograph(1, 60, 40, "PNG"), 1),
        (photograph(2, 16, 20), 2),
        (photograph(3, 16, 20, "PNG"), 0),
        (encode(np.full((50, 50), 80, np.uint8), "PNG"), 1),
        (photograph(5, 33, 32), 2),
    ]
    write_tfds(tmp_path / "tfds", {"train": train, "test": train[:2]}, (-1, -1, 3))
    return tmp_path / "tfds"


def stored_files(**fields: Any) -> list[Any]:
    store, splits = opening.open_store(DataConfig(**fields))
    read: Any = store.read(splits["train"][0])[0]
    return [file.data for file in read]


def test_files_are_kept_or_made_smaller(mixed: Path, tmp_path: Path):
    given = stored_files(source="tfds:tiny", data_dir=str(mixed))
    pack("tfds:tiny", tmp_path / "same", data_dir=mixed)
    assert stored_files(source=f"packed:{tmp_path / 'same'}") == given
    pack("tfds:tiny", tmp_path / "small", data_dir=mixed, size=32)
    small = stored_files(source=f"packed:{tmp_path / 'small'}")
    opened = [Image.open(io.BytesIO(data)) for data in small]
    assert [image.size for image in opened] == [
        (48, 32), (32, 48), (20, 16), (20, 16), (32, 32), (32, 33)
    ]  # fmt: skip
    assert {image.format for image in opened} == {"JPEG"}
    assert [i for i in range(6) if small[i] == given[i]] == [2, 5]
    for i in (0, 1, 3, 4):
        size = opened[i].size
        before = Image.open(io.BytesIO(given[i])).convert("RGB")
        expected = before.resize(size, Image.Resampling.BILINEAR).convert("L")
        # In luminance, as colours have half the resolution: a JPEG of quality 95 has
        # steps of 1 to 12 in its frequencies, so pixels are off by about 1.
        grey = np.asarray(opened[i].convert("L")) - np.asarray(expected).astype(int)
        assert np.abs(grey).mean() < 2


def test_raw_squares_are_the_whole_centre(mixed: Path, tmp_path: Path):
    pack("tfds:tiny", tmp_path / "raw", data_dir=mixed, format="raw", size=32)
    source = load_images(
        source=f"packed:{tmp_path / 'raw'}", validation_fraction=0
    ).train
    assert source.image_shape == (32, 32, 3)
    image = read_all(source)["image"]
    assert (image[4] == 80).all()
    landscape = np.asarray(Image.open(io.BytesIO(photograph(1, 60, 40, "PNG"))))
    square = Image.fromarray(landscape[10:50]).resize(
        (32, 32), Image.Resampling.BILINEAR
    )
    # Pixels beyond the square count into its first and last rows; the others differ
    # by the rounding of the filter's weights.
    difference = image[1][2:-2] - np.asarray(square)[2:-2].astype(int)
    assert np.abs(difference).max() <= 1
    with pytest.raises(UserError, match="of one size: give --size"):
        pack("tfds:tiny", tmp_path / "no", data_dir=mixed, format="raw")


def test_a_turned_photograph_is_packed_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned to the right.
    buffer = io.BytesIO()
    picture = Image.fromarray(np.full((40, 80, 3), 128, np.uint8))
    picture.save(buffer, "JPEG", exif=exif)
    form = Form("jpeg", 20, (None, None, 3), 10**6)
    packed = form.convert(StoredFile("one", buffer.getvalue()))
    assert Image.open(io.BytesIO(packed)).size == (20, 40)


def test_unreadable_images_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    train = examples(40)
    for bad in (3, 17, 39):
        train[bad] = (train[bad][0][:200], train[bad][1])
    splits = {"train": train, "test": [(b"no image", 0)] * 16 + examples(4)}
    write_tfds(tmp_path / "tfds", splits, (12, 10, 3))
    out = tmp_path / "out"
    command = (
        f"data --pack tfds:tiny --data-dir {quoted(tmp_path / 'tfds')} --out "
        f"{quoted(out)}"
    )
    assert main(shlex.split(command)) == 2
    assert "2 of the 40 images of the train split" in capsys.readouterr().err
    assert main([*shlex.split(command), "--max-bad-fraction", "0.9"]) == 0
    told = capsys.readouterr().out
    assert f"is packed in {out}: train 37, test 4" in told
    for bad in (3, 17, 39):
        assert f"train: split 'train' of tfds:tiny: image {bad} is unreadable" in told
    assert told.count("excluded from test") == 16
    fields: dict[str, Any] = {"source": f"packed:{out}", "validation_fraction": 0.0}
    labels = read_all(load_images(**fields).train)["target"]
    assert (labels == np.delete(np.arange(40) % 3, [3, 17, 39])).all()
    index = json.loads((out / "index.json").read_text())
    assert [entry[0] for entry in index["left_out"]["train"]] == [3, 17, 39]


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file()
    }


class KilledError(BaseException):
    """Stands for a kill: nothing catches it."""


def test_a_killed_pack_goes_on(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Killed at every file that is renamed: what is whole stays, the rest is redone."""
    fields: dict[str, Any] = {"data_dir": tiny, "format": "raw"}
    pack("tfds:tiny", tmp_path / "whole", **fields)
    expected = digests(tmp_path / "whole")
    out, replace, kills = tmp_path / "killed", os.replace, 0
    written: list[str] = []

    def dies(old: Path, new: Path) -> None:
        if len(written) == kills:
            raise KilledError
        written.append(Path(new).name)
        replace(old, new)

    monkeypatch.setattr(os, "replace", dies)
    while True:
        written.clear()
        try:
            pack("tfds:tiny", out, **fields)
            break
        except KilledError:
            with pytest.raises(UserError, match="resumes after an interruption"):
                load_images(source=f"packed:{out}")
            # A shard needs four renames: with more each time, some are whole.
            kills += 1
            assert kills < 30
    assert digests(out) == expected
    assert "00000.image" not in written  # It was there from before.


def test_damaged_notes_of_a_killed_pack_are_written_anew(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pack("tfds:tiny", tmp_path / "whole", data_dir=tiny)
    out, replace = tmp_path / "killed", os.replace

    def dies(old: Path, new: Path) -> None:
        if Path(new).name == "index.json":
            raise KilledError
        replace(old, new)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(os, "replace", dies)
        pack("tfds:tiny", out, data_dir=tiny)
    plan = (out / "plan.json").read_text()
    (out / "plan.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"plan\.json is damaged: remove"):
        pack("tfds:tiny", out, data_dir=tiny)
    (out / "plan.json").write_text(plan)
    for note in out.glob("0*.json"):
        note.write_text("[" * 100_000)
    pack("tfds:tiny", out, data_dir=tiny)
    assert digests(out) == digests(tmp_path / "whole")


def test_a_pack_of_something_else_is_refused(tiny: Path, tmp_path: Path):
    out = tmp_path / "out"
    pack("tfds:tiny", out, data_dir=tiny)
    before = digests(out)
    pack("tfds:tiny", out, data_dir=tiny)
    assert digests(out) == before
    with pytest.raises(UserError, match="size: None -> 8"):
        pack("tfds:tiny", out, data_dir=tiny, size=8)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="contains other files"):
        pack("tfds:tiny", tmp_path / "mine", data_dir=tiny)


def test_damage_is_found(tiny: Path, tmp_path: Path, capsys):
    out = tmp_path / "out"
    pack("tfds:tiny", out, data_dir=tiny)
    assert main(["data", "--verify", str(out)]) == 0
    assert "train 40, test 12, extra 3" in capsys.readouterr().out
    path = out / "00001.target"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"\x05")
    load_images(source=f"packed:{out}")  # Of the right size.
    assert main(["data", "--verify", str(out)]) == 2
    assert str(path) in capsys.readouterr().err
    for damaged in (good[:-1], good + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="bytes, expected 64"):
            load_images(source=f"packed:{out}")
    path.unlink()
    with pytest.raises(UserError, match="No such file"):
        load_images(source=f"packed:{out}")
    path.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="not a regular file"):
        load_images(source=f"packed:{out}")
    path.unlink()
    path.write_bytes(good)
    # Of the same size, but not what array_record wrote.
    image = out / "00000.image"
    image.write_bytes(bytes(image.stat().st_size))
    with pytest.raises(UserError, match="damaged"):
        load_images(source=f"packed:{out}")


@pytest.fixture
def few_open_files() -> Iterator[int]:
    """Few files may be open, unless the process asks for more; yields the most."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, limits[1])
    )
    yield limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_set_may_have_more_shards_than_files_may_be_open(
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_open_files: int,
):
    monkeypatch.setattr(writer, "FILES_A_SHARD", 1)
    pack("tfds:tiny", tmp_path / "out", data_dir=tiny)
    source = load_images(source=f"packed:{tmp_path / 'out'}", validation_fraction=0)
    assert (read_all(source.train)["target"] == np.arange(40) % 3).all()
    monkeypatch.setattr(system_errors, "MAX_OPEN", 300)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, few_open_files))
    with pytest.raises(
        UserError, match="has 165 files, but the limit of open files is 300"
    ):
        load_images(source=f"packed:{tmp_path / 'out'}")


HOSTILE: dict[str, Any] = {
    "format": "other",
    "version": 2,
    "image_shape": [12, 10],
    "shards": [],
    "splits": ["train", "train", "test", "extra"],
    "columns": {},
    "plan": 7,
    "shards.0.number": "../../x",
    "shards.2.number": 0,
    "shards.0.num_examples": 10**30,
    "shards.0.files": {"../image": [1, ""]},
    "shards.0.files.image": [10**30, ""],
    "shards.0.files.target": [4, ""],
    "columns.strata.dtype": "|O8",
    "columns.target.dtype": "<f999999",
    "columns.target.shape": [2**60],
    "columns.target.a": {"dtype": "<i4", "shape": []},
    "columns.a/b": {"dtype": "<i4", "shape": []},
}


def test_a_hostile_index_is_refused(tiny: Path, tmp_path: Path):
    out = tmp_path / "out"
    pack("tfds:tiny", out, data_dir=tiny)
    text = (out / "index.json").read_text()
    for place, value in HOSTILE.items():
        values = json.loads(text)
        *path, last = place.split(".") if place != "columns.target.a" else [
            "columns", "target.a"
        ]  # fmt: skip
        inner = values
        for key in path:
            inner = inner[int(key) if key.isdigit() else key]
        inner[last] = value
        (out / "index.json").write_text(json.dumps(values))
        with pytest.raises(UserError, match="not an index of packed data"):
            load_images(source=f"packed:{out}")
    deep = text.rstrip().removesuffix("}") + ', "x": ' + "[" * 900 + "]" * 900 + "}"
    for broken in ("", "{", "[]", "null", "[" * 10**5, "\xff", deep):
        (out / "index.json").write_text(broken, encoding="latin-1")
        with pytest.raises(UserError, match="not an index of packed data"):
            load_images(source=f"packed:{out}")
    (out / "index.json").write_text(text)
    assert len(load_images(source=f"packed:{out}").test) == 12


def packable(monkeypatch: pytest.MonkeyPatch, *opened: Any) -> None:
    module = ModuleType("own_source")
    module.open = lambda name, config: opened  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "own_source", module)
    monkeypatch.setitem(SOURCES.references, "own:NAME", "own_source:open")


def test_targets_may_be_dicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    images = np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4, 1)
    target = {"box": np.arange(24.0).reshape(6, 4), "more": {"n": np.arange(6)}}
    store = ArrayStore(images, target, {"names": ("a", "b")})
    splits = {"train": [np.arange(4)], "test": [np.arange(4, 6)]}
    packable(monkeypatch, store, splits)
    pack("own:x", tmp_path / "out", format="raw")
    packed, _ = opening.open_store(DataConfig(source=f"packed:{tmp_path / 'out'}"))
    assert packed.facts == {"names": ("a", "b")}
    image, read = packed.read(np.array([5, 0]))
    assert (np.asarray(image) == images[[5, 0]]).all()
    assert (read["box"] == target["box"][[5, 0]]).all()
    assert (read["more"]["n"] == [5, 0]).all()
    assert (packed.strata(np.arange(6)) == 0).all()
    both = {"train": [np.arange(4)], "test": [np.arange(3, 6)]}
    packable(monkeypatch, store, both)
    with pytest.raises(UserError, match="in several splits"):
        pack("own:x", tmp_path / "other", format="raw")


def test_a_source_of_ones_own_takes_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = (Path(__file__).parents[3] / "docs" / "extending.md").read_text()
    (example,) = re.findall(r"```python\n# my_source.py\n(.*?)```", page, re.DOTALL)
    # Not by the name of the example, which other tests import from elsewhere.
    source, out = tmp_path / "packed_source.py", tmp_path / "out"
    source.write_text(example.replace("num=512", "num=512, dark=0"))

    def packs(*options: str) -> int:
        words = ["--pack", f"{source}:stripes", "--out", str(out), "--format", "raw"]
        return main(["data", *words, *options])

    few = ["--data.options", "num", "64"]
    assert packs(*few) == 0
    assert "train 48, test 16" in capsys.readouterr().out
    options: dict[str, Any] = {"source": f"{source}:stripes", "options": {"num": 64}}
    own.allow([options["source"]])
    given, _ = opening.open_store(DataConfig(**options))
    packed, _ = opening.open_store(DataConfig(source=f"packed:{out}"))
    everything = np.arange(64)
    for one, other in zip(packed.read(everything), given.read(everything), strict=True):
        np.testing.assert_array_equal(one, other)
    assert packs(*few) == 0
    # Others, or none, are something else, be there as many images or not.
    assert packs(*few, "dark", "1") == packs() == 2
    told = capsys.readouterr().err
    assert "options: {'num': 64} -> {'num': 64, 'dark': 1}" in told
    assert "options: {'num': 64} -> None" in told
    assert packs(*few, "--data.max-pixels", "99") == 2
    assert "max_pixels: 67108864 -> 99" in capsys.readouterr().err
    assert packs("--data.options", "number", "3") == 2
    assert "does not accept its arguments" in capsys.readouterr().err


@each_row(
    ("words", "told"),
    [
        ("", "give one of --prepare, --check, --preview"),
        ("--verify x --size 3", "--size 3 has no effect with --verify"),
        ("--pack digits", "--out DIR"),
        ("--pack digits --out NEW", "the data set has arrays: give --format raw"),
        ("--pack digits --out NEW --format raw --size 0", "--size 0: expected"),
        ("--pack digits --out NEW --data.options num 3", "data.options = {'num': 3}"),
        (
            "--pack digits --out NEW --data.image-size 8",
            "data.image_size = 8 has no effect with --pack, only data.options and",
        ),
        ("--verify NEW", "contains no packed data"),
    ],
)
def test_wrong_words(words: str, told: str, tmp_path: Path, capsys):
    new = tmp_path / "new"
    assert main(["data", *shlex.split(words.replace("NEW", quoted(new)))]) == 2
    assert told in capsys.readouterr().err
    assert not new.exists()


def test_a_folder_with_links_is_not_packed_through_them(tiny: Path, tmp_path: Path):
    """Of a pack that was cut off, as somebody else may have prepared it."""
    pack("tfds:tiny", tmp_path / "whole", data_dir=tiny)
    out, victim = tmp_path / "out", tmp_path / "victim"
    out.mkdir()
    victim.touch()
    (out / "plan.json").symlink_to(victim)
    with pytest.raises(UserError, match=r"plan\.json is a link"):
        pack("tfds:tiny", out, data_dir=tiny)
    (out / "plan.json").unlink()
    (out / "plan.json").touch()
    for path in (tmp_path / "whole").iterdir():
        for name in (path.name, f"{path.name}.part", f"{path.name}.tmp"):
            if name != "index.json":
                (out / name).symlink_to(victim if len(name) % 2 else tmp_path / "new")
    pack("tfds:tiny", out, data_dir=tiny)
    assert victim.read_bytes() == b"" and not (tmp_path / "new").exists()
    assert digests(tmp_path / "whole").items() <= digests(out).items()
