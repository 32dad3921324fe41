"""All problems of a config at once."""

from pathlib import Path

import pytest

from jaxtrain import cli, own
from jaxtrain.commands import train
from jaxtrain.config import (
    AdamConfig,
    AugmentConfig,
    ClassificationConfig,
    Config,
    ConstantSchedule,
    CustomConfig,
    CustomOptimizerConfig,
    DataConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.config.base import unchecked
from jaxtrain.config.checking import check_names, checked
from jaxtrain.config.part import TASKS, make_part
from jaxtrain.config.recipe import WrongValuesError
from jaxtrain.data.augment import check_augmentations
from jaxtrain.errors import UntrustedError, UserError
from jaxtrain.problems import Problem, ProblemList, ProblemsError
from jaxtrain.trainer.periods import make_timetable


def refuse(text: str) -> None:
    raise UserError(text)


def test_checks_go_on_after_a_problem():
    problems = ProblemList()
    problems.check(refuse, "first")
    problems.check(lambda: [Problem("second"), Problem("third")])
    problems.check(refuse, "first")
    assert problems.build(int, "4") == 4
    with pytest.raises(ProblemsError) as error:
        problems.stop()
    told = str(error.value)
    assert told == "3 problems:\n  1. first\n  2. second\n  3. third"


def test_without_a_problem_nothing_is_raised():
    problems = ProblemList()
    problems.check(lambda: None)
    problems.stop()
    with pytest.raises(ZeroDivisionError):
        problems.build(lambda: 1 // 0)


def test_what_follows_from_a_problem_is_left_out():
    problems = ProblemList()
    assert problems.build(refuse, "first") is None
    problems.check(refuse, None)  # Its fact is not known.
    assert problems.build(lambda: 1 // 0) is None
    assert [problem.text for problem in problems.found] == ["first"]


def test_a_single_error_stays_what_it_was():
    problems = ProblemList()
    problems.check(refuse, "first")
    problems.check(lambda: None)
    with pytest.raises(UserError, match="first") as error:
        problems.stop()
    assert error.type is UserError


def test_code_that_is_not_trusted_ends_all_checks():
    def distrust() -> None:
        raise UntrustedError("x")

    with pytest.raises(UntrustedError):
        ProblemList().check(distrust)


def test_a_section_names_all_its_wrong_values():
    with pytest.raises(UserError) as error:
        SGDConfig(
            schedule=ConstantSchedule(warmup_factor=0.5), learning_rate=-1, clip_norm=-2
        )
    told = str(error.value)
    assert told.startswith("3 problems:")
    for text in (
        "learning_rate = -1: ",
        "clip_norm = -2: ",
        "optimizer.schedule.warmup_factor",
    ):
        assert text in told


def test_a_problem_is_told_once():
    with pytest.raises(UserError) as error:
        ClassificationConfig(loss="focal", label_smoothing=0.1)
    assert str(error.value).startswith("task.label_smoothing = 0.1 with task.loss")


def test_the_command_line_names_those_of_all_sections():
    words = "--data.batch-size -1 --optimizer.clip-norm 0 --train.epochs 2"
    words += " --train.steps 3 --data.crop-pct 0.5"
    with pytest.raises(WrongValuesError) as error:
        cli.parse("train", ["--config", "digits", *words.split()])
    told = [problem.text.partition(":")[0] for problem in error.value.problems]
    assert told == [
        "data.batch_size = -1",
        "data.crop_pct = 0.5 has no effect without data.image_size",
        "optimizer.clip_norm = 0.0",
        "train.epochs = 2.0 and train.steps = 3",
    ]
    # A start can be checked with the values of the recipe.
    usual = cli.parse("train", ["--config", "digits"]).overrides
    found = error.value.arguments.overrides
    assert found.data == usual.data and found.optimizer == usual.optimizer


def test_wrong_values_are_replaced_for_later_checks():
    with unchecked():
        wrong = Config(seed=-1, optimizer=AdamConfig(clip_norm=-1.0, eps=1e-6))
    recipe = Config(seed=3, optimizer=AdamConfig(clip_norm=2.0))
    problems, found = checked(wrong, recipe)
    assert [field for problem in problems for field in problem.fields] == [
        "optimizer.clip_norm",
        "seed",
    ]
    expected = AdamConfig(clip_norm=2.0, eps=1e-6)
    assert found == Config(seed=3, optimizer=expected)


def test_names_are_looked_up_together():
    config = Config(
        task=CustomConfig(name="clasification"),
        optimizer=CustomOptimizerConfig(name="adm"),
    )
    texts = [problem.text for problem in check_names(config)]
    assert len(texts) == 2
    assert texts[0].startswith("task = 'clasification' (perhaps you meant classif")
    assert texts[1].startswith("optimizer = 'adm' (perhaps you meant adam or ")


def test_options_of_a_task_are_looked_up_together():
    with pytest.raises(ProblemsError) as error:
        make_part(TASKS, "regression", {"los": "l1", "level": 0.5, "std": 0.0})
    told = [problem.text for problem in error.value.problems]
    assert len(told) == 3
    for text in ("not 'los'", "level = ", "std = "):
        assert any(text in problem for problem in told)


def test_a_timetable_tells_all_that_does_not_fit():
    augment = AugmentConfig(mosaic=0.5, close_mosaic=9)
    config = Config(
        data=DataConfig(image_size=8, progressive_sizes=(4, 6, 8), augment=augment),
        train=TrainConfig(epochs=2, swa_start_epochs=3, eval_every_epochs=1),
    )
    with pytest.raises(ProblemsError) as error:
        make_timetable(config, 256, has_validation=False)
    told = [problem.text.partition(" ")[0] for problem in error.value.problems]
    assert told == [
        "train.eval_every_epochs",
        "data.progressive_sizes",
        "data.augment.close_mosaic",
        "train.swa_start_epochs",
    ]


def test_augmentations_are_checked_together():
    names = ("x.py:a", "y.py:b")
    augment = AugmentConfig(hue=0.1, contrast=0.5, saturation=0.1, own=names)
    with own.allowing_nothing():
        own.allow(names)
        found = check_augmentations(augment, (8, 8, 1))
    told = [problem.text for problem in found]
    assert len(told) == 4
    for text, part in zip(told, ("saturation", "hue", *names), strict=True):
        assert part in text


# Options of the command line, and what tells of them.
SIX = {
    "--optimizer.clip-norm -1": "optimizer.clip_norm = -1.0: expected a value above 0",
    "--data.crop-pct 0.5": "data.crop_pct = 0.5 has no effect without data.image_size",
    "--model.name resnet19": "model = 'resnet19' (perhaps you meant resnet18 or",
    "--parallel.data 3": "parallel.data = 3 (preset data_parallel) does not fit the",
    "--data.hold-out classes": "data.hold_out = 'classes' with task = 'classific",
    "--data.batch-size 5000": "data.batch_size = 5000 is larger than the training",
    "--data.max-boxes 3": "data.max_boxes = 3 has no effect with data.source = ",
}


def test_consequences_of_replaced_values_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    of_start = [
        Problem("of the epochs of the recipe", ("train.epochs",)),
        Problem("of the seed, whatever train.epochs = 0 is", ("seed",)),
    ]
    monkeypatch.setattr(train, "problems", lambda arguments: of_start)
    assert cli.main(["--config", "digits", "--train.epochs", "0"]) == 2
    told = capsys.readouterr().err
    assert "2 problems" in told and "of the seed" in told
    assert "of the epochs" not in told


@pytest.mark.slow
def test_a_start_shows_mistakes_of_all_kinds_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    words = [word for option in SIX for word in option.split()]
    assert cli.main(["--config", "digits", "--platform", "cpu", *words]) == 2
    told = capsys.readouterr().err
    assert f"error: {len(SIX)} problems:" in told
    for number in range(1, len(SIX) + 1):
        (line,) = [row for row in told.splitlines() if row.startswith(f"  {number}. ")]
        assert any(line[5:].startswith(text) for text in SIX.values()), line
    assert not any(tmp_path.iterdir())
