"""The package of docs/plugin-packages.md: each command on a task of another package."""

import base64
import csv
import io
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from PIL import Image

from jaxtrain.tasks.pictures import COLOURS
from tests.helpers.forked import ROOT
from tests.helpers.processes import free_port
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.plugins]

TEXT = (ROOT / "docs" / "plugin-packages.md").read_text()
FILES = dict(re.findall(r"```python\n# keypoints/(\w+\.py)\n(.*?)```", TEXT, re.S))
COLUMNS = ["x_0", "y_0", "score_0", "x_1", "y_1", "score_1"]
NUM = 8
RECIPE = recipe(
    task='CustomConfig(name="keypoints")',
    data='DataConfig(source="dots:256", batch_size=32, augment=AugmentConfig('
    "horizontal_flip=True, crop_padding=2))",
    model='CustomModelConfig(name="heat_net")',
    optimizer="AdamWConfig(learning_rate=0.01, schedule=CosineSchedule())",
    train="TrainConfig(steps=200, eval_every_steps=25)",
    checkpoint="CheckpointConfig(every_steps=50)",
    logging="LoggingConfig(every_steps=50, report=True, tensorboard=False)",
)


class Trained(NamedTuple):
    """A run that was stopped and went on, in a folder with the package and images."""

    folder: Path
    stdout: str

    @property
    def env(self) -> dict[str, str]:
        path = {"PYTHONPATH": str(self.folder / "site"), "COLUMNS": "200"}
        return {**os.environ, **path}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(ROOT / "main.py"), *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def done(self, *words: str) -> str:
        process = self.start(*words)
        stdout, stderr = process.communicate()
        assert process.returncode == 0, stderr
        return stdout

    @property
    def pixels(self) -> np.ndarray:
        """The images, uint8 (NUM, 24, 24, 3)."""
        files = (self.folder / "photos" / f"{i}.png" for i in range(NUM))
        return np.stack([np.asarray(Image.open(file)) for file in files])


def write_package(site: Path) -> None:
    """Write the files of the page as a package is installed."""
    about = site / "keypoints-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: keypoints\nVersion: 1.0\n"
    )
    (about / "entry_points.txt").write_text(
        "[jaxtrain.plugins]\nkeypoints = keypoints:PLUGIN\n"
    )
    (site / "keypoints").mkdir()
    for name, text in FILES.items():
        (site / "keypoints" / name).write_text(text)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("outside")
    write_package(folder / "site")
    write_recipe(folder / "recipe.py", RECIPE)
    one = Trained(folder, "")
    one.done("draw-dots", "--out", "photos", "--num", str(NUM))
    words = "--config", "recipe.py", "--workdir", "run"
    one.done(*words, "--train.stop-after-steps", "75")
    return one._replace(stdout=one.done(*words))


def true_points() -> np.ndarray:
    names: dict[str, Any] = {}
    exec(FILES["source.py"], names)
    return np.stack([names["draw"](i)[1] for i in range(NUM)])


def predicted(trained: Trained) -> np.ndarray:
    """Return the rows of a table of predictions, (NUM, 6); pictures are beside it."""
    return predict(trained, "photos")


def predict(trained: Trained, images: str) -> np.ndarray:
    """Write `IMAGES.csv` and the folder `IMAGES-drawn` once; return the rows."""
    table = trained.folder / f"{images}.csv"
    if not table.exists():
        words = "--out", str(table), "--pictures", f"{images}-drawn"
        trained.done("predict", "--workdir", "run", *words, images)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["filename", *COLUMNS, "error"]
    return np.array([[float(row[name]) for name in COLUMNS] for row in rows])


def test_it_learns_stops_and_resumes(trained: Trained):
    assert read_lines(trained.folder / "run", "train")[-1]["step"] == 200
    evals = read_lines(trained.folder / "run", "eval")
    distances = [line["distance"] for line in evals if line["split"] == "validation"]
    assert len(distances) == 8
    assert distances[-1] < 1 < distances[0]


def test_a_resumed_run_is_one_that_never_stopped(trained: Trained):
    trained.done("--config", "recipe.py", "--workdir", "whole")
    whole, parts = (
        [
            (line["split"], line["step"], line["loss"], line["distance"])
            for line in read_lines(trained.folder / name, "eval")
        ]
        for name in ("whole", "run")
    )
    assert whole == parts


def test_its_predictions_are_drawn_on_the_images(trained: Trained):
    """Also on a larger image: where the table has the points, there are dots."""
    trained.done("predict", "--workdir", "run", "--pictures", "drawn", "photos")
    large = trained.folder / "large" / "photo.png"
    large.parent.mkdir()
    Image.fromarray(trained.pixels[0]).resize((72, 72), Image.Resampling.NEAREST).save(
        large
    )
    trained.done("predict", "--workdir", "run", "--pictures", "scaled", "large")
    points = predicted(trained).reshape(NUM, 2, 3)[..., :2]
    for number in range(NUM):
        drawn = np.asarray(Image.open(trained.folder / "drawn" / f"{number}.png.png"))
        changed = (drawn != trained.pixels[number]).any(-1)
        assert_dots_at(changed, points[number])
    # As a file of another size is cut, where the model sees its middle.
    scaled = np.asarray(Image.open(trained.folder / "scaled" / "photo.png.png"))
    changed = (scaled != np.asarray(Image.open(large))).any(-1)
    assert_dots_at(changed, 3 * points[0], within=5.0)


def assert_dots_at(
    changed: np.ndarray, points: np.ndarray, within: float = 2.0
) -> None:
    """Check that pixels have changed near each point, and nowhere else."""
    rows, columns = np.nonzero(changed)
    places = np.stack([columns + 0.5, rows + 0.5], -1)
    away = np.linalg.norm(places[:, None] - points, axis=-1)
    assert away.min(1).max() < within
    assert away.min(0).max() < within


def test_it_is_evaluated_with_an_interval(trained: Trained):
    trained.done("evaluate", "--workdir", "run")
    result = json.loads((trained.folder / "run" / "evaluation.json").read_text())
    test = read_lines(trained.folder / "run", "eval")[-1]
    assert test["split"] == "test"
    text = json.dumps(result)
    found = re.search(r'"distance": ([\d.]+)', text)
    assert found is not None
    assert float(found[1]) == pytest.approx(test["distance"], rel=1e-5)
    assert "distance" in json.dumps(result["intervals"])


def test_exported_programs_compute_the_points(trained: Trained):
    onnxruntime = pytest.importorskip("onnxruntime")
    for name in ("stablehlo", "onnx"):
        words = "--format", name, "--out", f"points.{name}", "--include-preprocessing"
        trained.done("export", "--workdir", "run", *words)
    file = trained.folder / "points.stablehlo"
    exported = jax.export.deserialize(bytearray(file.read_bytes()))
    ours = np.asarray(exported.call(trained.pixels))
    session = onnxruntime.InferenceSession(trained.folder / "points.onnx")
    (theirs,) = session.run(["points"], {"images": trained.pixels})
    for found in (ours, theirs):
        assert found.shape == (NUM, len(COLUMNS))
        assert found.dtype == np.float32
        found = found.reshape(NUM, 2, 3)
        near = np.linalg.norm(found[..., :2] - true_points(), axis=-1)
        # Of dots that lie on one another, one is hidden.
        assert np.median(near) < 0.5
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    np.testing.assert_allclose(ours, predicted(trained), atol=1e-4)


def test_a_server_answers_with_the_points(trained: Trained):
    port = free_port()
    process = trained.start("serve", "--workdir", "run", "--port", str(port))
    try:
        assert process.stdout is not None
        wait_until(lambda: "serving" in process.stdout.readline())  # pyright: ignore[reportOptionalMemberAccess]
        body = (trained.folder / "photos" / "0.png").read_bytes()
        url = f"http://127.0.0.1:{port}/predict"
        with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
            (found,) = json.load(answer)["predictions"]
    finally:
        process.terminate()
        process.communicate()
    assert list(found["values"]) == COLUMNS
    near = np.array([*found["values"].values()]).reshape(2, 3)[:, :2] - true_points()[0]
    assert np.abs(near).max() < 1
    row = predicted(trained)[0]
    np.testing.assert_allclose([*found["values"].values()], row, rtol=1e-5)


@pytest.mark.parametrize("times", [1, 3])
def test_pictures_have_dots_at_the_points(trained: Trained, times: int):
    """Also on images of another size than that which the model sees."""
    images = {1: "photos", 3: "enlarged"}[times]
    (trained.folder / images).mkdir(exist_ok=True)
    pixels = trained.pixels.repeat(times, 1).repeat(times, 2)
    for i, image in enumerate(pixels if times > 1 else ()):
        Image.fromarray(image).save(trained.folder / images / f"{i}.png")
    points = predict(trained, images).reshape(NUM, 2, 3)[..., :2]
    if times > 1:
        # The middle of an image that is made smaller: 7 of 8 pixels of its sides.
        points = (points / 24 * 7 / 8 + 1 / 16) * 24 * times
    assert np.median(np.linalg.norm(points - times * true_points(), axis=-1)) < times
    for i, image in enumerate(pixels):
        file = trained.folder / f"{images}-drawn" / f"{i}.png.png"
        drawn = np.asarray(Image.open(file))
        near = np.zeros(image.shape[:2], bool)
        for number, (x, y) in enumerate(points[i]):
            column, row = int(x), int(y)
            near[max(0, row - 2) : row + 3, max(0, column - 2) : column + 3] = True
            coloured = image[row, column] // 2 + COLOURS // 2
            # Of dots on one another the last is on top.
            assert any((drawn[row, column] == x).all() for x in coloured[number:2])
        np.testing.assert_array_equal(drawn[~near], image[~near])


def test_the_report_draws_the_points(trained: Trained):
    page = (trained.folder / "run" / "report.html").read_text()
    assert "distance, pixels" in page
    pictures = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))
        for text in re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    ]
    assert page.count("predicted") >= 8
    # Of each example the image, the true points and the predicted ones.
    for start in range(0, 3 * 8, 3):
        image, *drawn = pictures[start : start + 3]
        for one in drawn:
            assert (one != image).any()


def test_without_the_package_its_runs_are_refused_in_a_sentence(trained: Trained):
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "evaluate", "--workdir", "run"],
        cwd=trained.folder,
        env={**trained.env, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "install the plug-in" in done.stderr.splitlines()[-1]


def test_suggested_commands_fit_the_task(trained: Trained):
    assert "predict --workdir run --out predictions.csv" in trained.stdout
