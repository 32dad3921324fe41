"""The examples of the pages on custom parts, run as they say; and wrong parts."""

import base64
import contextlib
import io
import json
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.tasks.pictures import overlay
from tests.helpers.digits import read_test
from tests.helpers.numerics import FP64
from tests.helpers.processes import ROOT, Cli
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.tiers import thinned

PAGES = "extending.md", "model-pieces.md"
TEXT = "".join((ROOT / "docs" / page).read_text() for page in PAGES)
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.S))
COMMANDS = {
    file: shlex.split(line)[2:]
    for line, file in re.findall(
        r"^    (python main\.py .* (my_\w+\.py):.*)$", TEXT, re.M
    )
}
SHORT = "--train.steps 6 --optimizer.warmup-steps 0 --train.eval-every-steps 3"
SHORT += " --checkpoint.every-steps 3 --logging.every-steps 1 --logging.report False"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files of the page; what it imports is forgotten."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    monkeypatch.delitem(sys.modules, "traps", raising=False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return tmp_path


@contextlib.contextmanager
def server() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Serve on loopback; yield the address, and the JSON objects posted, by path."""
    posted: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", posted
        http.shutdown()
        thread.join()


def refusal(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a run of the digits with these words is refused with."""
    head = ["--config", "configs/digits.py", "--workdir", "run"]
    assert main([*head, *words.split()]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        *thinned(2, [name for name in FILES if name != "my_tracker.py"]),
    ],
)
def test_example_trains_and_resumes(name: str, folder: Path):
    train_and_resume(COMMANDS[name])


def train_and_resume(command: list[str]) -> None:
    """Train, go back to the first save, and compare what is recorded."""
    words = [*command, *SHORT.split(), "--workdir", "run"]
    assert main(words) == 0
    assert read_summary(Path("run"))["step"] == 6
    whole = read_lines(Path("run"))
    assert main([*words, "--resume-step", "3"]) == 0
    again = read_lines(Path("run"))
    for kind in ("train", "eval"):
        ours, theirs = ([x for x in w if x["kind"] == kind] for w in (again, whole))
        assert ours == theirs and theirs
    assert {x["step"] for x in again if x["kind"] == "event"} == {3}


@pytest.mark.slow
def test_tracker_gets_the_config_the_metrics_and_the_summary(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with server() as (url, posted):
        command = COMMANDS["my_tracker.py"]
        assert command[-1] == "http://127.0.0.1:8000"
        train_and_resume([*command[:-1], url])
    kinds = [path.removeprefix("/run/") for path, _ in posted]
    second = kinds.index("config", 1)
    for got, first_step in ((posted[:second], 1), (posted[second:], 4)):
        (_, config), *records, (path, summary) = got
        assert config["train"]["steps"] == 6 and config["logging"]["options"]
        assert path == "/run/summary" and summary["eval"]["num_examples"] == 360
        losses = {r["step"]: r["train/loss"] for _, r in records if "train/loss" in r}
        assert [*losses] == [*range(first_step, 7)]
        assert all(0 < loss < 9 for loss in losses.values())
        assert records[-1][1]["test/loss"] == summary["eval"]["loss"]
    # Evaluations do not load the writer: they need no trust.
    assert main(["evaluate", "--workdir", "run"]) == 0


@pytest.mark.plugins
@pytest.mark.slow
def test_a_metric_of_the_whole_set_is_sklearns(folder: Path):
    words = "--train.steps 6 --optimizer.warmup-steps 0 --logging.report False"
    command = [*COMMANDS["my_auroc.py"], *words.split(), "--workdir", "run"]
    assert main([*command, "--data.eval-batch-size", "100"]) == 0
    tested = read_summary(Path("run"))["eval"]
    images, labels = read_test()
    scores = load_model("run").predict(images)
    expected = roc_auc_score(labels, scores, multi_class="ovr", average="macro")
    assert 0.5 < expected < 0.999
    # float32 of two batch sizes: pairs of near scores may change places.
    assert tested["auroc"] == pytest.approx(expected, abs=1e-4)
    assert read_summary(Path("run"))["best"]["metric"] == "auroc"
    assert main(["evaluate", "--workdir", "run", "--trust"]) == 0
    evaluation = json.loads(Path("run/evaluation.json").read_text())
    assert evaluation["metrics"]["auroc"] == pytest.approx(expected, abs=1e-4)
    assert "auroc" not in evaluation["intervals"]["metrics"]
    # On devices, in stages, and with padding, it is of the same examples.
    for devices, mesh in ((4, "preset fsdp"),):
        result = Cli(folder).process(
            *[*command[:-1], f"run {devices}", *f"--parallel.{mesh}".split()],
            *["--data.eval-batch-size", "64"],
            JAX_NUM_CPU_DEVICES=str(devices),
        )
        assert result.code == 0, result.stderr
        other = read_summary(folder / f"run {devices}")["eval"]["auroc"]
        assert other == pytest.approx(tested["auroc"], abs=1e-3)


@pytest.mark.plugins
@pytest.mark.exhaustive
def test_maps_are_learnt_evaluated_and_put_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    words = "--train.epochs 8 --logging.report False --workdir run"
    assert main([*COMMANDS["my_segmentation.py"], *words.split()]) == 0
    assert main(["evaluate", "--workdir", "run", "--trust"]) == 0
    evaluated = json.loads(Path("run/evaluation.json").read_text())["metrics"]
    tested = read_summary(Path("run"))["eval"]
    assert tested["num_examples"] == 128 and tested["mean_iou"] > 0.45
    assert evaluated["mean_iou"] == pytest.approx(tested["mean_iou"], rel=1e-4)
    check_report(Path("run"), tested["loss"])
    attack = ["--attack", "fgsm", "--epsilon", "8/255", "--out", "attacked.json"]
    assert main(["evaluate", "--workdir", "run", "--trust", *attack]) == 0
    attacked = json.loads(Path("attacked.json").read_text())["adversarial"]
    assert attacked["clean_mean_iou"] == evaluated["mean_iou"] > attacked["mean_iou"]
    # A mask does not follow an image that is moved after it was read.
    assert main(["evaluate", "--workdir", "run", "--trust", "--corruptions"]) == 2
    assert "--corruptions: some corruptions move pixels" in capsys.readouterr().err
    # The maps are those that were evaluated.
    import my_segmentation  # pyright: ignore[reportMissingImports]

    store, splits = my_segmentation.shapes()
    images, masks = store.read(splits["test"][0])
    logits = load_model("run", trust=True).logits(images)
    assert logits.shape == (128, 32, 32, 3)
    both = [((logits.argmax(-1) == c) & (masks == c)).sum() for c in range(3)]
    either = [((logits.argmax(-1) == c) | (masks == c)).sum() for c in range(3)]
    assert np.mean(np.divide(both, either)) == pytest.approx(tested["mean_iou"], 1e-3)
    assert load_model("run", trust=True).logits(images[:0]).shape == (0, 32, 32, 3)
    Image.fromarray(images[0, ..., 0]).save("one.png")
    assert main(["predict", "--workdir", "run", "--trust", "one.png"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "has outputs of the shape (32, 32, 3) for an image" in told
    predict = ["predict", "--workdir", "run", "--trust", "one.png"]
    assert main([*predict, "--outputs", "maps"]) == 0
    written = np.load("maps/one.png.npy")
    np.testing.assert_allclose(written, logits[0], rtol=1e-5, atol=1e-5)


def check_report(run: Path, mean_loss: float) -> None:
    """The report of maps has the worst images, with masks over them."""
    from jaxtrain.plugins.report.sample import NUM_WORST

    assert main(["report", "--workdir", str(run), "--trust"]) == 0
    page = (run / "report.html").read_text()
    losses = [float(x) for x in re.findall(r"<b>loss (.*?)</b>", page)]
    assert len(losses) == NUM_WORST and losses == sorted(losses, reverse=True)
    assert losses[-1] > mean_loss
    worst = page.split('<div class="group">')[1]
    drawn = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(x))))
        for x in re.findall(r"data:image/png;base64,([^\"]+)", worst)
    ]
    names = re.findall(r"<figcaption>(true|predicted)</figcaption>", worst)
    assert names == ["true", "predicted"] and len(drawn) == 3
    import my_segmentation  # pyright: ignore[reportMissingImports]

    store, splits = my_segmentation.shapes()
    images, masks = store.read(splits["test"][0])
    (number,) = map(int, re.findall(r"no\.<wbr> (\d+)", worst))
    # Normalised and back, a grey value may differ by rounding.
    np.testing.assert_allclose(drawn[0].astype(int), images[number, ..., 0], atol=1)
    expected = overlay(images[number], masks[number])
    np.testing.assert_allclose(drawn[1].astype(int), expected, atol=1)
    assert drawn[2].shape == (32, 32, 3) and (drawn[2] != drawn[1]).any()


@pytest.mark.plugins
@pytest.mark.slow
def test_a_transformed_model_is_evaluated_put_out_and_exported(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    command = [*COMMANDS["my_quantised.py"], "--logging.report", "False"]
    command += ["--train.epochs", "3", "--optimizer.warmup-steps", "0"]
    assert main([*command, "--workdir", "run"]) == 0
    tested = read_summary(Path("run"))["eval"]
    assert tested["accuracy"] > 0.5
    assert main(["evaluate", "--workdir", "run"]) == 2
    assert "model.transform = 'my_quantised.py:quantised'" in capsys.readouterr().err
    assert main(["evaluate", "--workdir", "run", "--trust"]) == 0
    evaluated = json.loads(Path("run/evaluation.json").read_text())["metrics"]
    assert evaluated["loss"] == pytest.approx(tested["loss"], rel=1e-2)
    model = load_model("run", trust=True)
    images, labels = read_test()
    logits = model.logits(images)
    accuracy = np.mean(logits.argmax(-1) == labels)
    assert accuracy == pytest.approx(tested["accuracy"], abs=0.01)
    # What enters the second convolution had another scale than the one it began with.
    assert abs(float(model.model_state["conv2"]["promote_dtype"]["largest"]) - 1) > 0.2
    out = np.abs(logits).max()
    export = ["export", "--workdir", "run", "--trust", "--out", "exported"]
    assert main([*export, "--format", "safetensors"]) == 0
    config = json.loads(Path("exported/config.json").read_text())["jaxtrain"]
    assert [*config["own_parts"]] == ["my_quantised.py"]
    assert main(["predict", "--workdir", "exported", "none.png"]) == 2
    again = load_model("exported", trust=True).logits(images)
    np.testing.assert_allclose(again, logits, atol=1e-2 * out)
    export[-1] = "run.stablehlo"
    assert main([*export, "--format", "stablehlo"]) == 0
    export[-1] = "run.onnx"
    assert main([*export, "--format", "onnx", "--precision", "int8"]) == 0
    with (folder / "my_quantised.py").open("a") as file:
        file.write("# changed\n")
    assert main(["evaluate", "--workdir", "run", "--trust"]) == 2
    assert "was recorded: restore the file" in capsys.readouterr().err


@pytest.mark.plugins
@pytest.mark.slow
def test_a_transformed_model_is_the_same_on_devices(folder: Path):
    def losses(name: str, devices: int, *words: str) -> list[float]:
        command = [*COMMANDS["my_quantised.py"], *SHORT.split(), "--workdir", name]
        command += ["--model.dropout", "0"]
        env = {**FP64, "JAX_NUM_CPU_DEVICES": str(devices)}
        result = Cli(folder).process(*command, *words, **env)
        assert result.code == 0, result.stderr
        lines = read_lines(folder / name)
        return [line["loss"] for line in lines if line["kind"] in ("train", "eval")]

    one = losses("one", 1, "--precision", "fp64")
    for mesh in ("pipeline-stages 2", "spatial 2"):
        words = f"--precision fp64 --parallel.{mesh}".split()
        many = losses(f"many, {mesh}", 2, *words)
        # Grey values lie on halves, which the last bit rounds up or down.
        np.testing.assert_allclose(many, one, rtol=1e-5)
    # Gradients that are summed in float32, of layers that compute in bfloat16.
    bf16 = ("--precision", "bf16")
    one, two = losses("bf16", 1, *bf16), losses("2", 2, *bf16, "--parallel.fsdp", "2")
    np.testing.assert_allclose(two, one, rtol=0.03)


@pytest.mark.slow
def test_changed_file_is_told_at_resuming(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    words = [*COMMANDS["my_metric.py"], *SHORT.split(), "--workdir", "run"]
    assert main([*words, "--train.stop-after-steps", "3"]) == 0
    with (folder / "my_metric.py").open("a") as file:
        file.write("# changed\n")
    assert main(words) == 0
    told = "warning: my_metric.py has changed since step 3 was saved"
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_recipe_holds_the_part_itself(folder: Path):
    recipe = """
from jaxtrain import config

def get_config():
    return config.Config(
        data=config.DataConfig(batch_size=64),
        model=Small,
        optimizer=config.SGDConfig(learning_rate=0.1),
        train=config.TrainConfig(steps=2),
    )
"""
    (folder / "recipe.py").write_text(FILES["my_model.py"] + recipe)
    assert main(["--config", "recipe.py", "--workdir", "run"]) == 0
    assert '"recipe.py:Small"' in Path("run/config.json").read_text()


WRONG = {
    "--model none.py:Small": "no file none.py",
    "--model my_model.py:Large": "has no 'Large'; expected",
    "--model my_model.py:first": "requires conv, norm, x",
    "--model broken.py:Small": "importing broken.py failed: ZeroDivisionError",
    "--model json.py:Small": "another module is already named 'json'",
    "--model my_model.py:Small --model.options depth 3": "options are: channels",
    "--model.options depth 3": "no such option; convnet has width, dropout",
    "--optimizer my_model.py:last": "does not accept its arguments",
    "--data.source my_source.py:np": "expected a class or a function",
    "--data.augment.own wrong.py:half": "return an array of the same dtype and shape",
    "--train.metrics my_metric.py:confident": "expected a jaxtrain.tasks.metrics",
    "--logging.writers my_tracker.py:Tracker": "does not accept its arguments",
}


@pytest.mark.slow
@each_row("words", WRONG)
def test_wrong_part_is_refused(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "json.py").write_text("class Small: ...\n")
    (folder / "wrong.py").write_text(
        "def half(key, image, fill):\n    return image / 2\n"
    )
    assert WRONG[words] in refusal(words, capsys)
    assert not (folder / "run").exists()


# Tasks, models and metrics that say one thing and do another.
TRAPS = """
import numpy as np
from jaxtrain.data.stores import ArrayStore
from jaxtrain.tasks.metrics import Metric
from my_model import Small
from my_task import AutoEncoder


class Columns(AutoEncoder):
    def loss(self, outputs, target, *, training):
        return super().loss(outputs, target, training=training)[:, None]


class Quiet(AutoEncoder):
    shown = ("nothing",)


class Forgotten(AutoEncoder):
    def __init__(self, image_shape, facts):
        pass


class Wide(Small):
    def __init__(self, image_shape, num_outputs, *, layers):
        super().__init__(image_shape, 2 * num_outputs, layers=layers)


class Twice(Small):
    def __init__(self, image_shape, num_outputs, *, layers):
        super().__init__(image_shape, num_outputs, layers=layers)
        name = self.pieces[0].names[0]
        self.add_piece(lambda layer, x, rngs: x, **{name: layers.linear(10, 10)})


class Taken(Small):
    def __init__(self, image_shape, num_outputs, *, layers):
        super().__init__(image_shape, num_outputs, layers=layers)
        self.add_piece(lambda layer, x, rngs: x, train=layers.linear(10, 10))


class Hidden(Small):
    def __init__(self, image_shape, num_outputs, *, layers):
        super().__init__(image_shape, num_outputs, layers=layers)
        self.train = layers.linear(10, 10)


def right(logits, label, mask):
    return ((logits.argmax(-1) == label) * mask).sum()


split = Metric(right, better="higher")
plain = Metric(right)
root = Metric(right, lambda total, num: np.sqrt(np.float32(total / num)), "higher")
none = Metric(right, lambda total, num: None, "higher")


def unnamed():
    names = ("cat", "dog")
    images, label = np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 3
    facts = {"num_classes": 3, "class_names": names}
    store = ArrayStore(images, label.astype(np.int32), facts)
    return store, {"train": [np.arange(15)], "test": [np.arange(15, 20)]}
"""
TOLD = {
    "--task traps.py:Columns": "expected one value per example",
    "--task traps.py:Forgotten": "set num_outputs",
    "--model traps.py:Wide": "expected (2, 10)",
    "--model traps.py:Twice": "the name of another layer",
    "--model traps.py:Taken": "got the layer name 'train'",
    "--model traps.py:Hidden": "the layer 'train' shadows",
    "--train.metrics traps.py:split": "another metric already has the name",
    "--train.metrics traps.py:plain --checkpoint.best-metric plain": "expected loss",
    "--data.source traps.py:unnamed --data.batch-size 4": "but 2 class names",
}


@pytest.mark.slow
@each_row("words", TOLD)
def test_part_that_breaks_its_contract_is_told(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "traps.py").write_text(TRAPS)
    told = refusal(words, capsys)
    assert TOLD[words] in told and "Traceback" not in told


@pytest.mark.slow
@pytest.mark.parametrize("name", ["root", "none"])
def test_metric_of_numpy_or_of_nothing_is_recorded(name: str, folder: Path):
    (folder / "traps.py").write_text(TRAPS)
    words = f"--train.metrics traps.py:{name} --checkpoint.best-metric {name} {SHORT}"
    words = f"--config configs/digits.py --workdir run {words}"
    assert main(words.split()) == 0
    value = read_summary(Path("run"))["eval"][name]
    assert value is None if name == "none" else 0 < value <= 1


PARTS = "--model my_model.py:Small --data.source my_source.py:stripes "
PARTS += "--optimizer my_optimizer.py:adan --train.metrics my_metric.py:confidence "
PARTS += "--data.augment.own my_augmentation.py:invert"
AFTER = [
    "predict --workdir run cat.png",
    "evaluate --workdir run",
    "report --workdir run",
    "data --check --workdir run",
    "export --workdir run --format stablehlo --out run.stablehlo",
    "export --workdir run --format safetensors --out exported",
    "predict --workdir exported cat.png",
]


@pytest.mark.slow
def test_parts_of_a_trained_run_are_loaded_on_trust_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    train = f"--config configs/digits.py --workdir run {PARTS} {SHORT}".split()
    assert main(train) == 0
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("cat.png")
    for words in AFTER:
        capsys.readouterr()
        assert main(words.split()) == 2, words
        assert "is custom code named only by a saved run" in capsys.readouterr().err
        assert main([*words.split(), "--trust"]) == 0, words
        told = capsys.readouterr().err
        assert "my_model.py, sha256 " in told and told.count("as recorded") >= 1
    with (folder / "my_model.py").open("a") as file:
        file.write("# changed\n")
    for words in (AFTER[0], AFTER[-1]):
        assert main([*words.split(), "--trust"]) == 2, words
        assert "was recorded: restore the file" in capsys.readouterr().err
    # What names the parts accepts the change, and records it.
    assert main(train) == 0
    assert main([*AFTER[0].split(), "--trust"]) == 0


@pytest.mark.exhaustive
def test_other_processes_of_a_command_load_what_it_names(folder: Path):
    words = f"scale --config configs/digits.py {PARTS} --devices 2 --compile-only"
    assert main(words.split()) == 0
    words = f"--config configs/digits.py {PARTS} {SHORT} --workdir run"
    assert main([*words.split(), "--data.workers", "1", "--data.cache", "stream"]) == 0
