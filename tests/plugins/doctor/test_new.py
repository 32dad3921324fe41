"""`new`: a recipe after a look at the images, which trains as it is."""

import dataclasses
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import TimeoutExpired

import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.config import (
    Config,
    ConvNetConfig,
    CustomModelConfig,
    DataConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.config.recipe import load_config
from jaxtrain.data.opening import open_store
from jaxtrain.errors import UserError
from jaxtrain.plugins.doctor.advice import Advice, StartWeights, advise, find_weights
from jaxtrain.plugins.doctor.recipes import recipe_text
from jaxtrain.plugins.doctor.survey import Survey
from jaxtrain.plugins.plan import estimate, gpu_compiler
from jaxtrain.plugins.plan.estimate import Estimate
from jaxtrain.trainer.setup import build_setup
from tests.helpers.images import grey
from tests.helpers.messy import make_messy
from tests.helpers.rows import each_row
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE
from tests.helpers.words import quoted

DATA = DataConfig(source="folder:x")
ESTIMATE = Estimate(
    device="1 x cpu, 2 CPU cores",
    step_seconds=1.0,
    epoch_seconds=360.0,
    epochs=20,
    compile_seconds=5.0,
    faster={"--train.epochs 7": 2520.0},
)


# That of the module stands still in most tests.
estimate_run = estimate.estimate


@pytest.fixture(autouse=True)
def nothing_is_timed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To time a step is to compile it."""
    if request.node.get_closest_marker("exhaustive") is None:
        monkeypatch.setattr(estimate, "estimate", lambda config: ESTIMATE)


def survey_of(
    num_train: int, size: tuple[int, int], counts: list[int], colour: bool = True
) -> Survey:
    return Survey(
        counts={"train": num_train},
        class_counts=np.array(counts),
        sizes=np.array([size, size]),
        colour=colour,
        num_unreadable=0,
        facts={"num_classes": len(counts)},
        groups=np.zeros(num_train, np.int32),
    )


def values(
    num_train: int, size: tuple[int, int], counts: list[int], colour: bool = True
) -> dict[str, object]:
    advice = advise(survey_of(num_train, size, counts, colour), DATA)
    return fields(advice)


def fields(advice: Advice) -> dict[str, object]:
    return {n: one for section in advice.values() for n, (one, _) in section.items()}


def test_small_images_stay_as_they_are():
    digits = values(60_000, (28, 28), [6000] * 10, colour=False)
    assert (digits["image_size"], digits["channels"]) == (28, 1)
    assert digits["crop_padding"] == 3 and not digits["horizontal_flip"]
    assert "random_resized_crop" not in digits and "sampling" not in digits


def test_a_recipe_grows_with_the_set():
    few = values(400, (300, 300), [320, 80], colour=False)
    assert (few["image_size"], few["channels"]) == (128, 1)
    assert few["test_fraction"] == few["validation_fraction"] == 0.2
    assert few["sampling"] == "balanced" and few["batch_size"] == 8
    assert few["warmup_fraction"] == 0.05 and "warmup_epochs" not in few
    many = values(1_281_167, (375, 500), [1281] * 1000)
    assert (many["image_size"], many["name"]) == (224, "adamw")
    assert many["batch_size"] == 128 and many["label_smoothing"] == 0.1
    assert values(30_000, (100, 150), [3000] * 10)["image_size"] == 96


def test_images_far_from_a_square_are_kept_whole():
    """A centred square would cut 80 % away, of strips as of columns."""
    for size in ((48, 240), (240, 48)):
        found = values(400, size, [320, 80])
        assert (found["crop_mode"], found["image_size"]) == ("border", 128)
        assert found["crop_padding"] == 16 and "random_resized_crop" not in found
    assert "crop_mode" not in values(400, (240, 360), [320, 80])
    seen = dataclasses.replace(survey_of(400, (64, 64), [320, 80]), white_level=4095)
    assert fields(advise(seen, DATA))["white_level"] == 4095


@each_row("num_train", [10, 11, 19, 160])
def test_a_batch_never_exceeds_what_is_left_to_train_on(num_train: int):
    found = values(num_train, (64, 64), [num_train])
    assert 1 <= int(str(found["batch_size"])) <= 0.64 * num_train


def test_a_handful_of_images_is_refused():
    with pytest.raises(UserError, match="9 training images are too few"):
        values(9, (64, 64), [5, 4])


def test_a_recipe_that_fine_tunes(tmp_path: Path):
    found = survey_of(200, (60, 80), [100, 100], colour=False)
    weights = StartWeights("weights/mine.pth", "resnet50", 224, 3)
    out = tmp_path / "fine.py"
    advice = advise(found, DATA, weights)
    out.write_text(recipe_text(advice, "classification", "folder:x", out, ["Seen."]))
    config = load_config(out)
    assert (config.data.image_size, config.data.channels) == (224, 3)
    assert config.model.name == "resnet50"
    assert config.model.pretrained == "weights/mine.pth"
    assert config.train.fine_tune and config.train.epochs == 30
    assert config.optimizer.warmup_fraction is None
    # More images take fewer epochs.
    found = survey_of(20_000, (300, 300), [10_000, 10_000])
    assert fields(advise(found, DATA, weights))["epochs"] == 10


def test_weights_say_what_they_are_of(tmp_path: Path):
    with pytest.raises(UserError, match=r"mine\.pth does not exist"):
        find_weights(str(tmp_path / "mine.pth"))


def test_tiny_images_are_enlarged():
    assert values(100, (1, 1), [50, 50])["image_size"] == 8


@pytest.mark.slow
def test_the_recipe_trains_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recipe = tmp_path / "configs" / "mine.py"
    assert main(["new", "--data", "digits", "--out", str(recipe)]) == 0
    told = capsys.readouterr().out
    assert "1,437 train, 360 test" in told and f"--config {quoted(recipe)}" in told
    # Written as the formatter would, and nothing is left to say.
    check = [sys.executable, "-m", "ruff", "format", "--check", str(recipe)]
    assert subprocess.run(check, capture_output=True).returncode == 0
    setup = build_setup(load_config(recipe))
    assert setup.splits.train.image_shape == (8, 8, 1)
    workdir = tmp_path / "run"
    words = f"--config {quoted(recipe)} --workdir {quoted(workdir)} --train.epochs 12 "
    words += "--logging.report False"
    assert main(shlex.split(words)) == 0
    assert read_summary(workdir)["eval"]["accuracy"] > 0.9


def test_a_folder_needs_no_word_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    messy = make_messy(tmp_path / "my birds", num=8)
    recipe = tmp_path / "birds.py"
    assert main(["new", "--data", "my birds", "--out", "birds.py"]) == 0
    assert load_config(recipe).data.source == "folder:my birds"
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"{messy.num_images} train" in told and f"1 of {messy.num_images}" in told
    assert "passed over 2 .cr2, 2 .db, 2 .txt, 1 .md; 1 images outside the" in told
    # What the whole run would take, and what takes less.
    assert "about 2 h, 20 epochs of 6 min and 5 s to compile, on 1 x cpu" in told
    assert "about 2 h, 20 epochs of 6 min" in recipe.read_text()
    assert "--train.epochs 7: about 42 min" in told
    for command in (
        "python main.py data --check --config birds.py",
        "python main.py --config birds.py",
        "python main.py evaluate --workdir runs/birds",
    ):
        assert command in told, told
    # A link that leads out of it is refused by default, and allowed for the run, too.
    (tmp_path / "my birds" / "ducks" / "link.png").symlink_to(tmp_path / "out.png")
    (tmp_path / "out.png").write_bytes(grey(7))
    words = ["new", "--data", "my birds", "--out", "linked.py"]
    assert main(words) == 2
    assert "link.png resolves to" in capsys.readouterr().err
    assert main([*words, "--allow-outside"]) == 0
    assert load_config(tmp_path / "linked.py").data.allow_outside
    with pytest.raises(
        UserError, match="= 'my birds' has no source type: write folder:my"
    ):
        open_store(DataConfig(source="my birds"))


def test_what_may_make_a_run_faster():
    config = Config(data=DataConfig(image_size=128))
    found = estimate.changes(config)
    assert [*found] == [
        "--model.width 0.5",
        "--data.image-size 64",
        "--data.image-size 96",
    ]
    assert found["--data.image-size 64"].data.image_size == 64
    small = Config(data=DataConfig(image_size=28))
    assert [*estimate.changes(small)] == ["--model.width 0.5"]
    # The weights are of all channels.
    tuned = Config(model=ResNetConfig(name="resnet18", pretrained="x.pth"))
    assert [*estimate.changes(tuned)] == []


@each_row(
    ("seconds", "words"),
    [
        (95, "2 min"),
        (5500, "1 h 30 min"),
        (9 * 86400, "9 days"),
    ],
)
def test_times_are_told_roughly(seconds: float, words: str):
    assert estimate.roughly(seconds) == words


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError("python exited with code -6 without a result:\nabort"),
            "exited with code -6",
        ),
        (TimeoutExpired("python", 9), "not compiled and timed within 9 s"),
    ],
)
def test_a_process_that_does_not_answer_is_told(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
):
    def call(*_: object, timeout: float) -> None:
        assert 0 < timeout <= 9
        raise error

    monkeypatch.setattr(gpu_compiler, "call", call)
    found = estimate_run(Config(), 9)
    assert isinstance(found, str) and told in found and "\n" not in found


@pytest.mark.exhaustive
def test_a_few_steps_are_timed_or_given_up():
    data = DataConfig(source="digits", batch_size=64)
    config = Config(
        data=data,
        model=ConvNetConfig(width=0.25),
        optimizer=SGDConfig(learning_rate=0.1),
    )
    found = estimate.estimate(config, PATIENCE)
    assert isinstance(found, Estimate), found
    assert found.epochs == 10 and "CPU cores" in found.device
    # Some 20 steps and an evaluation.
    assert 20 * found.step_seconds < found.epoch_seconds < 25 * found.step_seconds
    assert estimate.estimate(config, 0.0) == (
        "a step was not compiled and timed within 0 s"
    )
    # Of a long run also what would be faster.
    long = dataclasses.replace(config, train=TrainConfig(epochs=10**6))
    found = estimate.estimate(long, PATIENCE)
    assert isinstance(found, Estimate), found
    assert "--train.epochs 333333" in found.faster
    assert all(seconds < found.seconds for seconds in found.faster.values())
    wrong = dataclasses.replace(config, model=CustomModelConfig(name="resnet99"))
    assert "resnet99" in str(estimate.estimate(wrong, PATIENCE))


@each_row(
    ("words", "message"),
    [
        ("--data digits --out {}/there.py", "already exists"),
        ("--data digits --out {}/mine.txt", "expected a Python file"),
        ("--data nothing:x --out {}/mine.py", "data.source = 'nothing:x'"),
        ("--data digits --out {}/there.py/mine.py", "mine.py: "),
        ("--data digits", "--out"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "there.py").write_text("precious")
    try:
        code = main(["new", *shlex.split(words.format(quoted(tmp_path)))])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "there.py").read_text() == "precious"


def test_labels_that_no_image_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    images = np.random.default_rng(0).integers(0, 255, (20, 9, 9, 3)).astype(np.uint8)
    np.savez(tmp_path / "set.npz", image=images, label=np.zeros((20, 2), np.float32))
    recipe = tmp_path / "mine.py"
    assert (
        main(["new", "--data", f"arrays:{tmp_path}/set.npz", "--out", str(recipe)]) == 2
    )
    assert "no training image has any of the 2 labels" in capsys.readouterr().err
    assert not recipe.exists()


def test_odd_names_are_written_so_that_they_can_be_read(tmp_path: Path):
    source = tmp_path / 'it\'s "odd".py'
    source.write_text(
        "import numpy as np\n"
        "from jaxtrain.data.stores import ArrayStore\n"
        "def noise():\n"
        "    image = np.random.default_rng(0).integers(0, 255, (64, 9, 9, 3))\n"
        "    label = np.arange(64, dtype=np.int32) % 2\n"
        "    store = ArrayStore(image.astype(np.uint8), label, {'num_classes': 2})\n"
        "    return store, {'train': [np.arange(64)]}\n"
    )
    recipe = tmp_path / "mine.py"
    assert main(["new", "--data", f"{source}:noise", "--out", str(recipe)]) == 0
    config = load_config(recipe)
    assert config.data.source == f"{source}:noise"
    assert config.data.test_fraction == 0.2 and config.data.channels == 3
