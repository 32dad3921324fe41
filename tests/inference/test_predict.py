"""`predict` on a user's own files: rows, features, maps, and every bad input."""

import csv
import functools
import io
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from jaxtrain import extras, load_model
from jaxtrain.cli import main
from jaxtrain.data import formats
from jaxtrain.data.image_files import FileNames
from jaxtrain.errors import Interrupted, UserError
from jaxtrain.inference import folder, gradcam, image_paths, predict, sinks, stream
from jaxtrain.inference.cells import from_cell
from jaxtrain.inference.gradcam import overlay
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.training import forward
from jaxtrain.weights.stored import abstract_weights
from tests.helpers import command
from tests.helpers.described import describe
from tests.helpers.images import encode
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row

NAMES = ("cat", "dog", "émeu", "newt")
SHAPE = (16, 16, 3)
NUM = 24


def make(
    class_names: tuple[str, ...] | None = NAMES,
    shape: tuple[int, int, int] = SHAPE,
    precision: str = "fp32",
    scale: float = 0.15,
    **options: Any,
) -> TrainedModel:
    """Return a model of random weights."""
    about = describe(
        model_config(**{"name": "lenet", **options}),
        shape,
        task="classification" if class_names else "my_task.py:Mine",
        precision=precision,
        num_outputs=4,
        class_names=class_names,
        std=(0.25,) * shape[2],
        crop_pct=0.875,
    )
    draws = np.random.default_rng(0)
    weights = jax.tree.map(
        lambda x: draws.normal(0.0, scale, x.shape).astype(x.dtype),
        abstract_weights(about),
    )
    # Variances are above 0.
    params, model_state = weights[0], jax.tree.map(np.abs, weights[1])
    return make_model(about, params, model_state, {"step": 7, "run": 32 * "a"}, "here")


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    return make()


@pytest.fixture(scope="module")
def exported(
    model: TrainedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder that holds the model, and photos: one hidden, one damaged, one text."""
    root = tmp_path_factory.mktemp("predict")
    folder.write(model, root / "model")
    draws = np.random.default_rng(1)
    for i in range(NUM):
        path = root / "photos" / ("b" if i % 2 else "a") / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(draws.integers(0, 256, (20, 18, 3), np.uint8)))
    (root / "photos" / ".hidden.png").write_bytes(encode(np.zeros(SHAPE, np.uint8)))
    (root / "photos" / "notes.txt").write_text("no image")
    (root / "photos" / "a" / "bad.JPG").write_bytes(b"\xff\xd8\xff nonsense")
    yield root
    shutil.rmtree(root)


@pytest.fixture
def here(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").symlink_to(exported / "photos")
    (tmp_path / "model").symlink_to(exported / "model")
    return tmp_path


def run(words: str) -> int:
    return main(["predict", "--workdir", "model", *shlex.split(words)])


def in_order() -> list[str]:
    """Return the names of the photos as a folder stands for them."""
    names = [f"photos/{'b' if i % 2 else 'a'}/{i:02d}.png" for i in range(NUM)]
    return sorted([*names, "photos/a/bad.JPG"])


def test_rows_features_and_pictures_of_a_folder(
    here: Path, model: TrainedModel, capsys: pytest.CaptureFixture[str]
):
    words = "--out there/found.csv --features f.npy --explain seen --batch-size 10"
    assert run(f"{words} --strict photos") == 1
    told = capsys.readouterr()
    assert f"--strict: 1 of {NUM + 1} images could not be read" in told.err
    assert f"there/found.csv, f.npy, seen: {NUM + 1} images in " in told.out

    with open("there/found.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["filename", "index", "label", "prob", "error"]
    assert [row["filename"] for row in rows] == in_order()
    features = np.load("f.npy")
    assert features.dtype == np.float32 and len(features) == len(rows)
    good = [i for i, row in enumerate(rows) if not row["error"]]
    paths = [rows[i]["filename"] for i in good]
    expected = model.predict(paths)
    # Another size of the batch may round otherwise.
    np.testing.assert_allclose(
        [float(rows[i]["prob"]) for i in good], expected.max(1), rtol=1e-5
    )
    assert [int(rows[i]["index"]) for i in good] == expected.argmax(1).tolist()
    assert {NAMES[int(rows[i]["index"])] == rows[i]["label"] for i in good} == {True}
    np.testing.assert_allclose(features[good], model.features(paths), rtol=1e-4)

    (bad,) = set(range(len(rows))) - set(good)
    assert rows[bad]["filename"] == "photos/a/bad.JPG" and rows[bad]["index"] == ""
    assert np.isnan(features[bad]).all() and np.isfinite(features[good]).all()
    pictures = {str(p.relative_to("seen")) for p in Path("seen").rglob("*.png")}
    assert pictures == {p.removeprefix("photos/") + ".png" for p in paths}
    for path in pictures:
        with Image.open(Path("seen", path)) as image:
            assert image.size == (224, 248)  # The class is named below.
    # Nothing else is left.
    assert {p.name for p in here.iterdir()} == {
        *("there", "f.npy", "seen", "model", "photos")
    }


@each_row(
    ("ending", "told"),
    [(".heic", "[heic]'"), (".avif", "needs Pillow with AVIF support")],
)
def test_images_that_a_missing_library_would_read_are_told(
    ending: str,
    told: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    root = here / ending[1:]
    (root / "a").mkdir(parents=True)
    for name in ("a/1.png", f"2{ending}", f"a/3{ending.upper()}", "4.cr2", "5.txt"):
        (root / name).write_bytes(encode(np.zeros(SHAPE, np.uint8)))
    monkeypatch.setattr(formats, "is_read", lambda name: name not in ("HEIF", "AVIF"))
    assert run(f"{root.name} --out p.csv") == 0
    line = f"passed over: 2 {ending}, 1 .cr2 ("
    text = capsys.readouterr().out
    assert line in text and told in text
    assert run(f"{root.name} --out q.csv --strict") == 1
    assert f"--strict: {line}" in capsys.readouterr().err
    (root / "a" / "1.png").unlink()
    for words in (root.name, f"{root.name[0]}?{root.name[2:]}"):
        assert run(words) == 2
        err = capsys.readouterr().err
        assert line in err and told in err


def test_the_likeliest_classes_in_other_formats(here: Path, model: TrainedModel):
    assert run("--topk 3 --out found.jsonl photos/b/*.png") == 0
    lines = Path("found.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert run("--topk 3 --out found.parquet photos/b") == 0
    table = parquet.read_table("found.parquet")
    assert [str(kind) for kind in table.schema.types] == [
        *("string", "int32", "int32", "int32", "string", "string", "string"),
        *("float", "float", "float", "string"),
    ]
    expected = model.predict([row["filename"] for row in rows])
    order = np.argsort(-expected, axis=1)[:, :3]
    for one, other, best, probs in zip(
        rows, table.to_pylist(), order, expected, strict=True
    ):
        assert list(one) == list(other)
        assert [one[f"index_{i}"] for i in range(3)] == best.tolist()
        assert [one[f"label_{i}"] for i in range(3)] == [NAMES[i] for i in best]
        got = [one[f"prob_{i}"] for i in range(3)]
        np.testing.assert_allclose(got, probs[best], rtol=1e-5)
        assert {k: v for k, v in other.items() if "prob" not in k} == {
            k: v for k, v in one.items() if "prob" not in k
        }
        # The shortest decimals are the same float32.
        assert [np.float32(other[f"prob_{i}"]) for i in range(3)] == [
            np.float32(x) for x in got
        ]


def test_the_screen_shows_the_first_rows_and_no_others_are_read(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "200")
    read = counted(monkeypatch)
    assert run("photos --topk 2") == 0
    told = capsys.readouterr().out
    assert len(read) == 20
    assert [name for name in in_order() if name in told] == in_order()[:20]
    assert "unreadable: " in told and "1 of 20 images could not be read" in told
    assert "5 more images were not predicted: --out predictions.csv writes all" in told
    assert run("photos --features f.npy") == 0
    assert "5 more images are not shown" in capsys.readouterr().out
    assert np.load("f.npy").shape == (NUM + 1, 84)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of the images that are read from now on."""
    read, to_pixels = [], stream.to_pixels

    def count(image: Any, *rest: Any, **options: Any) -> np.ndarray:
        read.append(image)
        return to_pixels(image, *rest, **options)

    monkeypatch.setattr(stream, "to_pixels", count)
    return read


def test_names_come_from_standard_input_as_they_are(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    odd = os.path.join(b".", b"od\xffd\tname\n.png")
    Path(os.fsdecode(odd)).write_bytes(encode(np.zeros(SHAPE, np.uint8)))
    names = [b"photos/b/03.png", b"gone.png", b"photos/a/00.png", odd]
    give(monkeypatch, b"\0".join(names) + b"\0")
    assert run("--out found.jsonl -") == 0
    rows = [json.loads(x) for x in Path("found.jsonl").read_text("utf-8").splitlines()]
    assert [row["filename"] for row in rows] == [
        *("photos/b/03.png", "gone.png", "photos/a/00.png"),
        "./od\\xffd\tname\n.png",
    ]
    gone = "No such file or directory"
    assert [row["error"] for row in rows] == [None, gone, None, None]
    give(monkeypatch, b"photos/a/00.png\r\nodd\r.png\0")
    assert run("--out found.csv -") == 0
    assert b"\r" not in Path("found.csv").read_bytes()
    with open("found.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["filename"] == r"photos/a/00.png\r\nodd\r.png"
    assert from_cell(row["filename"]) == "photos/a/00.png\r\nodd\r.png"
    monkeypatch.setattr(sys, "stdin", None)  # As `<&-` leaves it.
    with pytest.raises(UserError, match="standard input has no file names"):
        image_paths.expand_paths(["-"])
    lines = image_paths.expand_paths(["-"], io.BytesIO(b"b.png\n\na.png"))
    assert [lines[i] for i in range(len(lines))] == [b"b.png", b"a.png"]


def give(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_words_stand_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x/2.png", "x/10.JPEG", "x/y/1.webp", "x/.z/3.png", "x/.4.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    for name in ("x/notes.txt", "a[1].png", "empty/none"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()

    def names(*words: str) -> list[str]:
        listed = image_paths.expand_paths(words)
        return [listed[i].decode() for i in range(len(listed))]

    everything = ["x/10.JPEG", "x/2.png", "x/y/1.webp"]
    assert names("x") == everything
    assert names("x/notes.txt", "x/y") == ["x/notes.txt", "x/y/1.webp"]
    assert names("x/**/*.[pw]*") == ["x/2.png", "x/y/1.webp"]
    assert names("x/**") == [*everything[:2], "x/notes.txt", "x/y/1.webp"]
    assert names("?") == everything
    assert names("a[1].png") == ["a[1].png"]
    assert image_paths.common_folder(FileNames.join([b"x/2.png"])) == os.fsencode(
        tmp_path / "x"
    )
    two = FileNames.join([b"x/y/1.webp", b"x/2.png", b"x/yes.png"])
    assert image_paths.common_folder(two) == os.fsencode(tmp_path / "x")


BAD = {
    "give files, directories, patterns": "",
    "gone.png: no such file or directory (relative to": "gone.png",
    "empty contains no image: expected files with the extension .jpg": "empty",
    "e*ty matches only directories without images": "e*ty",
    "photos/a/00.png is given twice: give": "photos/a/00.png photos",
    "./photos/a/00.png is given twice, also as photos/a/00.png": (
        "photos/a/00.png ./photos/a/00.png"
    ),
    "- : standard input has no file names": "-",
    "--topk 0: give 1 or more": "--topk 0 photos",
    "--topk 5: the model has 4 classes": "--topk 5 photos",
    "--out x.txt: expected a file with the extension .csv, .jsonl, .parquet": (
        "--out x.txt photos"
    ),
    "--out folder.csv is a directory: give a file name": ("--out folder.csv photos"),
    "--out file/x.csv: the path is not writable": "--out file/x.csv photos",
    "--features x.csv: expected a NumPy file": "--features x.csv photos",
    "--explain file is a file: give a directory": "--explain file photos",
    "--explain full is not empty": "--explain full --out x.csv photos",
    "checkpoint = 'latest' has no effect": "--checkpoint latest photos",
    "--calibrated: model/temperature.json does not exist: copy temperature.json "
    "from the run that exported the model": "--calibrated photos",
}


@each_row("message", BAD)
def test_bad_input_is_told_and_nothing_is_written(
    here: Path,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("empty", "folder.csv", "full/it"):
        Path(name).mkdir(parents=True, exist_ok=True)
    Path("file").touch()
    give(monkeypatch, b"\n")
    before = sorted(here.rglob("*"))
    assert run(BAD[message]) == 2
    assert message in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


def test_a_workdir_without_checkpoint_or_pyarrow_is_told(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    assert main(["predict", "--workdir", "photos", "photos"]) == 2
    assert (
        "photos is a folder of images: give the directory of a run"
        in capsys.readouterr().err
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run("--out x.parquet photos") == 2
    told = capsys.readouterr().err
    assert (
        f"requires pyarrow, which is not installed: {extras.install('predict')}" in told
    )


def test_an_interrupted_command_leaves_what_was_there(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    Path("found.csv").write_text("old")

    def interrupt(*_: Any) -> None:
        raise Interrupted(signal.SIGINT, "nothing was lost")

    overlay, drawn = gradcam.overlay, []

    def once(*given: Any) -> Any:
        drawn.append(given)
        if len(drawn) > 8:
            interrupt()
        return overlay(*given)

    monkeypatch.setattr(gradcam, "overlay", once)
    words = "--out found.csv --features f.npy --explain seen --batch-size 8 photos"
    assert run(words) == 130
    assert len(drawn) == 9 and Path("found.csv").read_text() == "old"
    assert {p.name for p in here.iterdir()} == {"found.csv", "model", "photos"}


def test_a_temperature_divides_the_logits(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree("model", "run")
    options = "--calibrated --topk 4 --out found.jsonl"
    words = f"predict --workdir run photos/b {options}".split()

    def fit(**values: Any) -> None:
        run_id = load_model("model").origin["run"]
        fitted = {"run_id": run_id, "step": 7, "tta": None, **values}
        Path("run/temperature.json").write_text(json.dumps(fitted))

    fit(temperature=2.5, step=7, split="validation")
    assert main(words) == 0
    lines = Path("found.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    logits = load_model("model").logits([row["filename"] for row in rows]) / 2.5
    expected = np.exp(logits.astype(np.float64))
    expected = np.sort(expected / expected.sum(1, keepdims=True))[:, ::-1]
    got = [[row[f"prob_{i}"] for i in range(4)] for row in rows]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    for values, message in (
        ({"temperature": 2.5, "tta": "flip"}, "test-time augmentation (flip)"),
        ({"temperature": 0.0}, "temperature = 0.0: expected a number above 0"),
        ({"temperature": None}, "Expected `float`, got `null` - at `$.temperature`"),
        ({}, "temperature.json: Object missing required field `temperature`"),
    ):
        fit(**values)
        assert main(words) == 2
        assert message in capsys.readouterr().err


def test_a_task_without_classes_has_its_outputs(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    plain = make(None)
    folder.write(plain, Path("plain"))
    words = ["predict", "--workdir", "plain", "photos/b"]
    assert main([*words, "--out", "found.csv"]) == 0
    with open("found.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["filename", *(f"output_{i}" for i in range(4)), "error"]
    values = np.array([row[1:-1] for row in rows[1:]], np.float32)
    expected = plain.logits([row[0] for row in rows[1:]])
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    for option in ("--topk 2", "--explain seen"):
        assert main([*words, *option.split()]) == 2
        assert f"{option.split()[0]}: task = 'my_task.py:Mine'" in (
            capsys.readouterr().err
        )


def test_outputs_are_a_file_of_each_image(
    here: Path, model: TrainedModel, capsys: pytest.CaptureFixture[str]
):
    assert run("--outputs all --batch-size 7 photos") == 0
    told = capsys.readouterr().out
    assert f"all: {NUM + 1} images in " in told
    names = [name for name in in_order() if "bad" not in name]
    written = sorted(str(path) for path in Path("all").rglob("*.npy"))
    assert written == [f"all/{name.removeprefix('photos/')}.npy" for name in names]
    found = np.stack([np.load(path) for path in written])
    np.testing.assert_allclose(found, model.logits(names), rtol=1e-5, atol=1e-6)
    assert run("--outputs all photos") == 2
    assert "--outputs all is not empty" in capsys.readouterr().err


def test_several_heads_are_one_file(tmp_path: Path):
    heads = {"mask": np.ones((2, 4, 4)), "size": {"rows": np.arange(2)}}
    pixels = np.zeros((2, 8, 8, 3), np.uint8)
    paths: list[Any] = [str(tmp_path / name) for name in ("a.png", "b.png")]
    names: Any = [os.fsencode(path) for path in paths]
    batch = stream.ImageBatch(paths, pixels, [None, "no image"], {"outputs": heads})
    with ExitStack() as renames, sinks.outputs(tmp_path / "o", names, renames) as write:
        write(batch)
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["a.png.npz"]
    found = np.load(tmp_path / "o" / "a.png.npz")
    assert set(found) == {"mask", "size/rows"} and found["mask"].shape == (4, 4)


def test_channels_that_no_file_has_are_refused():
    with pytest.raises(UserError, match="5 channels, which image files cannot"):
        predict.check(make(shape=(16, 16, 5)), predict.Wanted())


def cam(model: TrainedModel, pixels: np.ndarray, last: int) -> tuple[np.ndarray, Any]:
    """Return maps by finite differences, and the classes that they are of.

    As the mean of dy / dA_k over rows and columns is the change of y where A_k grows
    by as much everywhere, divided by their number.
    """
    weights = model.params, model.model_state

    def apply(x: Any, part: slice) -> np.ndarray:
        function = functools.partial(
            forward.predict, model.graphdef, *weights, part=part
        )
        return np.asarray(jax.jit(function)(x))

    activations = apply(model.prepare(jnp.asarray(pixels)), slice(last + 1))
    after = functools.partial(apply, part=slice(last + 1, None))
    classes = after(activations).argmax(1)
    num, rows, columns, channels = activations.shape
    change, eps = np.zeros((num, channels)), 1e-6
    for k in range(channels):
        for sign in (1, -1):
            moved = activations.copy()
            moved[..., k] += sign * eps
            change[:, k] += sign * after(moved)[np.arange(num), classes]
    alpha = change / (2 * eps) / (rows * columns)
    return np.maximum(np.einsum("nk,nhwk->nhw", alpha, activations), 0), classes


def test_maps_are_grad_cam():
    last = 1
    with command.float64(True):
        model = make(precision="fp64", scale=0.3, name="convnet", width=0.0625)
        assert gradcam.last_place(model) == last
        pixels = np.random.default_rng(2).integers(0, 256, (5, *SHAPE), np.uint8)
        expected, classes = cam(model, pixels, last)
        found = gradcam.heat_maps(
            model,
            last,
            model.params,
            model.model_state,
            model.prepare(jnp.asarray(pixels)),
            jnp.asarray(classes),
        )
        assert expected.max() > 0.1 and (expected == 0).any()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_pictures_show_where_the_map_is():
    heat = np.zeros((4, 4), np.float32)
    heat[3, 0] = 2.0
    grey = np.full((28, 28, 1), 100, np.uint8)
    picture = np.asarray(overlay(grey, heat), int)
    assert picture.shape == (224, 224, 3)
    # Red at the lower left, and elsewhere as it was.
    assert (picture[220, 4] - 100)[0] > 10 > (picture[220, 4] - 100)[2]
    assert (picture[:100, 120:] == 100).all()
    assert (np.asarray(overlay(grey, np.zeros((4, 4), np.float32))) == 100).all()
    colour = np.zeros((250, 300, 3), np.uint8)
    assert overlay(colour, heat).size == (300, 250)


@pytest.mark.slow
def test_the_number_of_devices_changes_nothing(here: Path):
    words = "predict --workdir model --explain seen --features f.npy --topk 4 photos"
    for num in (1, 4):
        out = f"{num}.jsonl"
        run_words = [*words.replace("seen", f"seen{num}").split(), "--out", out]
        env = {} if num == 1 else {command.DEVICES: str(num)}
        result = command.run(run_words, here, env)
        assert result.code == 0, result.stderr
    one, four = (
        [json.loads(line) for line in Path(f"{n}.jsonl").read_text().splitlines()]
        for n in (1, 4)
    )
    for row, other in zip(one, four, strict=True):
        assert [*row] == [*other] and row["index_0"] == other["index_0"]
        if row["error"] is None:
            assert row["prob_0"] == pytest.approx(other["prob_0"], rel=1e-4)
