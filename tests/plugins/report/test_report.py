"""The page on a run: at its end, by the command, and of what is left of a run."""

import base64
import contextlib
import io
import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jaxtrain.checkpoints.folder import newest_step
from jaxtrain.cli import main
from jaxtrain.config.recipe import read_run
from jaxtrain.data import loader
from jaxtrain.inference.load import load_model
from jaxtrain.plugins.report import at_end as end_report, collect as examples, sample
from jaxtrain.plugins.report.history import read_history
from jaxtrain.plugins.report.sample import SampleLimits
from jaxtrain.trainer.setup import build_setup
from tests.helpers.browser import DARK, LIGHT, MEASURE, Elements, browse, screenshot
from tests.helpers.edited import edit
from tests.helpers.images import encode
from tests.helpers.processes import run_two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_summary
from tests.helpers.words import quoted

SCRIPT = "<script>alert(1)</script>"
CLASSES = ("cat & dog", SCRIPT, "'\"><b>bird")
SPLITS = {"train": 48, "validation": 12, "test": 30}
# A name with markup in it; `/` separates folders.
HOSTILE_FILE = "<img src=x onerror=alert(2)>.png"
RUN = recipe(
    data='DataConfig(source="csv:set/list.csv", image_size=12, channels=1, '
    "batch_size=8, augment=AugmentConfig(cutout_size=5))",
    train="TrainConfig(steps=12, eval_every_steps=4)",
    checkpoint="CheckpointConfig(every_steps=4)",
    logging="LoggingConfig(every_steps=2, tensorboard=False, report=True)",
)


def write_set(root: Path) -> None:
    """Write grey images whose brightness tells the class, some of them wrongly."""
    root.mkdir()
    generator, rows = np.random.default_rng(0), ["path,label,split"]
    for split, num in SPLITS.items():
        for i in range(num):
            label = i % 3
            name = HOSTILE_FILE if (split, i) == ("test", 0) else f"{split}-{i}.png"
            # The first images of the test split are no such class.
            value = 40 + 80 * (label if split != "test" or i > 2 else (label + 1) % 3)
            pixels = generator.integers(0, 40, (12, 12), np.uint8) + np.uint8(value)
            (root / name).write_bytes(encode(pixels))
            escaped = CLASSES[label].replace('"', '""')
            rows.append(f'{name},"{escaped}",{split}')
    (root / "list.csv").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the images, the recipe and a finished run, `run`."""
    folder = tmp_path_factory.mktemp("report")
    write_set(folder / "set")
    write_recipe(folder / "recipe.py", RUN)
    with contextlib.chdir(folder):
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            assert main(["--config", "recipe.py", "--workdir", "run"]) == 0
        assert "warning" not in error.getvalue()
    return folder


@pytest.fixture
def here(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Copy the run without its page, and go there."""

    def copy(data: bool = True) -> Path:
        shutil.copytree(root / "run", tmp_path / "run")
        (tmp_path / "run" / "report.html").unlink()
        if data:
            (tmp_path / "set").symlink_to(root / "set")
        monkeypatch.chdir(tmp_path)
        return tmp_path / "run"

    return copy


def report(workdir: Path, *words: object) -> str:
    """Write the page of a run by the command, and return it."""
    assert main(["report", "--workdir", str(workdir), *map(str, words)]) == 0
    return (workdir / "report.html").read_text()


def text_of(page: str) -> str:
    """Return what is read on a page, in one line."""
    return " ".join(Elements(page.partition("<body>")[2]).text.split())


def test_a_run_ends_with_its_page(root: Path):
    page = (root / "run" / "report.html").read_text()
    seen, summary = text_of(page), read_summary(root / "run")
    assert len(page) < 300_000
    assert "Finished at step 12." in seen
    for name in ("accuracy", "loss"):
        assert f"{summary['eval'][name]:.4g}test {name}" in seen
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles == [
        *("Curves", "Confusion matrix", "Classes", "Examples", "Reliability"),
        *("Training images", "Data", "Time", "System", "Config"),
        "Reproduce this run",
    ]
    matrix = [n for row in summary["eval"]["confusion_matrix"] for n in row if n]
    drawn = re.findall(r'<text class="(?:over|seen)"[^>]*>(\d+)<', page)
    assert sorted(map(int, drawn)) == sorted(matrix)
    # Nothing is loaded from anywhere.
    bare = re.sub(r'base64,[^"]*', "", page)
    assert not re.search(r"(src|href)=\"(?!data:|#)|url\(|@import|https?:", bare)


def test_the_worst_mistakes_are_those_of_the_model(root: Path):
    model = load_model(root / "run")
    table = (root / "set" / "list.csv").read_text().splitlines()[1:]
    rows = [row.split(",")[0] for row in table if row.endswith(",test")]
    labels = np.arange(len(rows)) % 3
    # Classes are in the order of their names.
    numbers = {name: i for i, name in enumerate(model.class_names or ())}
    labels = np.array([numbers[CLASSES[i]] for i in labels])
    found = model.predict([root / "set" / name for name in rows])
    of_true = found[np.arange(len(rows)), labels]
    wrong = np.flatnonzero(found.argmax(axis=1) != labels)
    assert len(wrong) >= 3
    expected = [rows[i] for i in wrong[np.argsort(of_true[wrong])][:24]]
    page = (root / "run" / "report.html").read_text()
    part = page.partition("Worst mistakes")[2].partition("Least confident")[0]
    seen = Elements(part)
    names = re.findall(r"[\w<>= ()-]+\.png", seen.text)
    assert [name.strip() for name in names] == expected
    assert all(f"{100 * of_true[i]:.1f}%" in seen.text for i in wrong)
    # Names are seen from the folder of the set, wherever that is.
    assert str(root) not in seen.text
    images = [attrs["src"] for tag, attrs in seen.tags if tag == "img"]
    assert len(images) == len(expected)
    assert all((image or "").startswith("data:image/png;base64,") for image in images)


@pytest.mark.slow
def test_a_browser_shows_it_whole_and_obeys_no_name(root: Path, tmp_path: Path):
    source = root / "run" / "report.html"
    page = source.read_text()
    dom, console = browse(source, "--dump-dom")
    assert not console
    seen = Elements(dom)
    for name in (*CLASSES, HOSTILE_FILE):
        assert name in seen.text
    assert not {"script", "b>bird", "link", "iframe"} & {tag for tag, _ in seen.tags}
    assert not any(name.startswith("on") for _, attrs in seen.tags for name in attrs)
    widths = [400, 1400]
    measure = tmp_path / "measure.html"
    quoted = json.dumps(page).replace("</", "<\\/")
    html = MEASURE.replace("PAGE", quoted).replace("WIDTHS", str(widths))
    measure.write_text(html)
    dom, console = browse(measure, "--dump-dom", "--virtual-time-budget=5000")
    assert not console
    found = re.findall(r"<p>(\d+) (\d+) (\d+)</p>", dom)
    assert sorted(int(width) for width, _, _ in found) == widths
    for width, wide, tall in found:
        assert int(wide) <= int(width), "scrolled sideways"
        assert int(tall) > 2000


@pytest.mark.slow
def test_a_browser_paints_it_by_night(root: Path):
    pixels = screenshot(root / "run" / "report.html", 900, 1800, dark=True)
    colours = {tuple(c) for c in pixels.reshape(-1, 3).tolist()}
    assert len(colours) > 500
    assert DARK in colours and LIGHT not in colours


def test_the_training_images_are_those_of_the_first_step(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(root)
    page = (root / "run" / "report.html").read_text()
    part = page.partition("Training images")[2].partition("</section>")[0]
    addresses = re.findall(r"base64,([^\"]*)", part)
    assert len(addresses) == 16
    pairs = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(address))))
        for address in addresses
    ]
    setup = build_setup(read_run(root / "run"))
    source = setup.splits.train
    order = loader.make_order(setup.config.data, source, setup.config.seed)
    stored = source.read(order.indices(0)[:8])["image"][..., 0]
    for image, before, after in zip(stored, pairs[::2], pairs[1::2], strict=True):
        assert (before == image).all()
        # Cutout, in the mean colour, of 5x5 pixels at most.
        assert 0 < (after != image).sum() <= 25


@pytest.mark.parametrize("stops", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_page_that_fails_or_is_not_waited_for_fails_no_run(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stops: bool,
):
    monkeypatch.chdir(root)

    def read(workdir: Path) -> Any:
        if not stops:
            raise ZeroDivisionError("by a bug")
        signal.raise_signal(signal.SIGTERM)
        return read_history(workdir)

    monkeypatch.setattr(end_report, "read_history", read)
    run = tmp_path / "run"
    words = ["--config", "recipe.py", "--workdir", str(run), "--train.steps", "1"]
    assert main([*words, "--train.eval-every-steps", "1"]) == 0
    told = [x for x in capsys.readouterr().err.splitlines() if "report.html" in x]
    reason = "interrupted by a signal" if stops else "ZeroDivisionError: by a bug"
    assert len(told) == 1 and reason in told[0]
    assert f"python main.py report --workdir {quoted(run)}" in told[0]
    assert not (run / "report.html").exists()
    assert read_summary(run)["step"] == 1


def test_the_command_writes_the_same_page(root: Path, here: Callable[..., Path]):
    assert report(here()) == (root / "run" / "report.html").read_text()


def test_an_unfinished_run_is_judged_by_its_validation_split(
    here: Callable[..., Path],
):
    run = here()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    kept = [x for x in lines if json.loads(x)["step"] < 9]
    # Cut off by a kill; of a run that was resumed, and whose loss was no number.
    event = {"kind": "event", "step": 4, "epoch": 0.5, "event": "resumed"}
    bad = {"kind": "train", "step": 10, "epoch": 1.7, "loss": None, "mine": 2.5}
    kept += [json.dumps(event), json.dumps(bad), lines[-1][:20]]
    (run / "metrics.jsonl").write_text("\n".join(kept))
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints" / "12")
    assert newest_step(run / "checkpoints") == 8
    page = report(run)
    seen = text_of(page)
    assert "Not finished: recorded up to step 10, saved at step 8." in seen
    assert "all 12 images of the validation split, with the model of step 8" in seen
    assert "1 damaged line of metrics.jsonl" in seen
    assert "The loss of 1 line is not finite" in seen
    assert (
        "Dashed lines mark where the run was resumed." in seen
        and "<h3>mine</h3>" in page
    )
    assert "Confusion matrix" not in seen and "test accuracy" not in seen


def test_what_is_gone_is_told_and_the_rest_is_shown(here: Callable[..., Path]):
    run = here(data=False)
    page = report(run)
    seen = text_of(page)
    told = "Examples and their images: data.source = 'csv:set/list.csv' does not exist"
    assert told in seen
    assert "Confusion matrix" in seen and "<h3>loss" in page and "<img" not in page
    for name in ("config.json", "model.json", "data.json"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")
    seen = text_of(report(run))
    assert "config.json does not exist" in seen
    assert "Finished at step 12." in seen and "test accuracy" in seen
    (run / "summary.json").write_text("[1]")
    assert "summary.json is not a JSON object" in text_of(report(run))


def test_looking_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(root)
    monkeypatch.setattr(sample, "MAX_EXAMPLES", 20)
    monkeypatch.setattr(sample, "BATCH", 8)
    history = read_history(root / "run")
    setup = build_setup(read_run(root / "run"))
    found = examples.collect_examples(setup, history, SampleLimits()).predictions
    assert found is not None and len(found.label) == 20 and found.num_split == 30
    assert len(set(found.index.tolist())) == 20
    limits = SampleLimits(seconds=-1)
    found = examples.collect_examples(setup, history, limits).predictions
    assert found is not None and len(found.label) == 8
    limits = SampleLimits(should_stop=lambda: True)
    stopped = examples.collect_examples(setup, history, limits)
    assert stopped.predictions is None and not stopped.pairs


@pytest.mark.slow
def test_a_task_without_classes_has_its_own_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    task = '"tests.helpers.autoencoder:AutoEncoder"'
    data = 'DataConfig(source="synthetic:8x8x1/4/32", batch_size=16, '
    data += "validation_fraction=0)"
    logging = "LoggingConfig(every_steps=1, report=True)"
    text = recipe(task=task, data=data, train="TrainConfig(steps=2)", logging=logging)
    write_recipe(tmp_path / "recipe.py", text)
    assert main(["--config", "recipe.py", "--workdir", "run"]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    seen = text_of(page)
    # Named as one of regression, it has the title of that.
    assert "test RMSE" in seen and "<h3>RMSE</h3>" in page
    num = read_summary(tmp_path / "run")["eval"]["num_examples"]
    assert f"Predictions for all {num} images of the test split, with the model" in seen
    shown = page.partition(">Largest losses<")[2].partition("</section>")[0]
    losses = [float(x) for x in re.findall(r"<b>loss (.*?)</b>", shown)]
    assert len(losses) == min(num, 12) and losses == sorted(losses, reverse=True)
    assert (
        shown.count("target: pixels [") == shown.count("prediction: [") == len(losses)
    )
    assert "No mistake" not in page and "Left out" not in seen
    assert "There is no evaluation on a validation split" in seen
    assert "<h2>Training images</h2>" in page
    assert "Confusion" not in page.replace("no confusion", "")


def test_runs_are_laid_side_by_side(root: Path, here: Callable[..., Path]):
    run = here()
    other = run.with_name("other <i>run</i>".replace("/", "|"))
    shutil.copytree(run, other)
    edit(other / "config.json", optimizer__learning_rate=0.25)
    summary = read_summary(other)
    summary["eval"]["loss"] /= 2
    edit(other / "summary.json", eval=summary["eval"])
    words = ["report", "--workdir", str(run), "--compare", str(other)]
    assert main(words) == 0
    page = (run / "comparison.html").read_text()
    seen = text_of(page)
    assert "<i>run<|i>" in seen and "<i>run" not in page
    assert "Fields that differ: 1." in seen
    assert "optimizer.learning_rate 0.1 0.25" in seen
    best = re.findall(r'<span class="best">(.*?)</span>', page)
    assert best == [f"{summary['eval']['loss']:.4g}"]
    charts = re.findall(r"<h3>(.*?)</h3>", page)
    assert {"loss, training", "loss, validation"} <= set(charts)
    first = page.partition("<h3>loss, training")[2].partition("</svg>")[0]
    assert first.count('class="line"') == 2


@each_row(
    ("words", "message"),
    [
        (
            "--workdir set",
            "--workdir set is not the directory of a run: it contains neither "
            "config.json nor metrics.jsonl; it is a folder of images; give the "
            "directory of a run",
        ),
        ("--workdir run --compare run", "--compare run: the run is given twice"),
        (
            "--workdir run --compare none",
            "--workdir none is not the directory of a run",
        ),
        ("--workdir run --compare x --platform cpu", "--platform cpu has no effect"),
        (
            f"--workdir run --compare {'x ' * 16}",
            "17 runs, but a page shows at most 16",
        ),
        ("--workdir run --out set/list.csv/x", "--out set/list.csv/x: cannot write"),
    ],
)
def test_what_does_not_fit_is_refused(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    message: str,
):
    monkeypatch.chdir(root)
    monkeypatch.setattr(examples, "collect_examples", lambda *_: examples.Examples())
    assert main(["report", *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.exhaustive
def test_process_0_writes_the_page_of_several(root: Path, tmp_path: Path):
    (tmp_path / "set").symlink_to(root / "set")
    write_recipe(tmp_path / "recipe.py", RUN)
    words = ["--config", "recipe.py", "--workdir", "run", "--parallel.preset", "fsdp"]
    result = run_two(tmp_path, *words)
    assert result.code == 0, result.stderr
    assert "report.html" not in result.stderr
    seen = text_of((tmp_path / "run" / "report.html").read_text())
    assert "all 30 images of the test split" in seen and "processes2" in seen
    assert "as stored and as augmented" in seen and "Left out" not in seen
