"""`main.py evaluate` under attacks and corruptions, and with other images."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.errors import UserError
from jaxtrain.plugins.adversarial.attacks import Ball
from jaxtrain.plugins.robustness.attacked import ThreatModel
from jaxtrain.tasks.classification import Classification
from tests.helpers.evaluations import evaluate, found
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row


@pytest.fixture(scope="module")
def folder(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short run on the digits, `run`."""
    root = tmp_path_factory.mktemp("evaluate")
    shutil.copytree(digits_run, root / "run")
    return root


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """The model on the test split, attacked, and others."""
    words = "--ood synthetic:8x8x1/4/100 --attack fgsm apgd --steps 5 --epsilon 16/255"
    return found(folder, words)


@each_row(
    ("attacks", "num_classes", "message"),
    [
        (("pgd", "apgd-t"), 3, "requires 4 or more classes, but the model has 3"),
        (("apgd-ce",), 3, ""),
        (("apgd-t",), 4, ""),
    ],
)
def test_the_targeted_attack_asks_for_four_classes(
    attacks: tuple[str, ...], num_classes: int, message: str
):
    threat = ThreatModel(attacks=attacks, ball=Ball(epsilon=0.1))
    task = Classification((8, 8, 1), {"num_classes": num_classes})
    if not message:
        threat.check(task, "classification")
    else:
        with pytest.raises(UserError, match=message):
            threat.check(task, "classification")


@pytest.mark.slow
def test_attacks_and_other_images_are_told(whole: dict[str, Any]):
    attacked, accuracy = whole["adversarial"], whole["metrics"]["accuracy"]
    assert attacked["clean_accuracy"] == accuracy > attacked["accuracy"]
    assert attacked["epsilon"] == 16 / 255 and attacked["metric"] == "accuracy"
    low, high = attacked["accuracy_interval"]
    assert low < attacked["accuracy"] < high
    names, steps, robust = zip(*(a.values() for a in attacked["attacks"]), strict=True)
    assert names == ("fgsm", "apgd-ce", "apgd-t") and steps == (1, 5, 5)
    # What an attack has not fooled the next one tries; the last is what is told.
    assert accuracy > robust[0] > robust[1] >= robust[2] == attacked["accuracy"]
    other = whole["out_of_distribution"]
    # All of it has a test split: a quarter of the training examples.
    assert other["num_examples"] == 25
    assert all(0.5 < other[score]["auroc"] <= 1 for score in ("max_softmax", "energy"))


@each_row(
    ("words", "message"),
    [
        ("--epsilon 0.1", "--epsilon 0.1 has no effect without --attack"),
        ("--attack pgd", "requires --epsilon: add a value"),
        ("--attack pgd --epsilon 8", "--epsilon 8: expected a number or fraction"),
        ("--attack fgsm --epsilon 0.1 --steps 3", "has no effect with --attack fgsm"),
        ("--attack pgd --epsilon 0.1 --steps 0", "--steps 0: expected 1 or more"),
        ("--baseline run/summary.json", "has no effect without --corruptions"),
        ("--corruptions --baseline run/summary.json", "expected an evaluation.json"),
        ("--tta flip --ood digits", "the energy score needs logits"),
        ("--ood synthetic:8x8x2/4", "2 channels can only be used in the stored shape"),
    ],
)
def test_what_does_not_go_together_is_refused(folder: Path, words: str, message: str):
    result = evaluate(folder, words)
    assert result.code == 2, result.stderr
    assert message in result.stderr


@pytest.mark.slow
def test_attacks_find_the_same_on_any_devices(tmp_path: Path):
    """In float64: in float32 the signs of slopes of about 0 are those of rounding."""
    text = recipe(precision='"fp64"', train="TrainConfig(steps=20)")
    config = write_recipe(tmp_path / "recipe.py", text)
    assert Cli(tmp_path)("--config", config, "--workdir", "run", **FP64).code == 0
    words = "--attack apgd --steps 5 --epsilon 16/255 --data.eval-batch-size"
    one = found(tmp_path, f"{words} 40", **FP64, JAX_NUM_CPU_DEVICES="1")
    many = found(tmp_path, f"{words} 104", **FP64, JAX_NUM_CPU_DEVICES="8")
    ours, theirs = one["adversarial"], many["adversarial"]
    assert ours["attacks"] == theirs["attacks"]
    assert 0 < ours["accuracy"] == theirs["accuracy"] < ours["clean_accuracy"]
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=TOLERANCE)


@pytest.mark.exhaustive
def test_a_task_without_classes_is_attacked_and_corrupted(tmp_path: Path):
    task = "tests.helpers.autoencoder:AutoEncoder"
    config = write_recipe(
        tmp_path / "recipe.py", recipe(task=f'"{task}"', train="TrainConfig(steps=10)")
    )
    assert Cli(tmp_path)("--config", config, "--workdir", "run").code == 0
    robust = found(tmp_path, "--attack fgsm --epsilon 8/255 --corruptions --trust")
    attacked, corrupted = robust["adversarial"], robust["corruptions"]
    assert attacked["metric"] == corrupted["metric"] == "rmse"
    clean = attacked["clean_rmse"]
    assert clean == corrupted["clean_error"] == robust["metrics"]["rmse"]
    low, high = attacked["rmse_interval"]
    assert low < attacked["rmse"] < high and clean < attacked["rmse"]
    assert np.array(list(corrupted["errors"].values())).shape == (15, 5)
    assert corrupted["relative"] is None
    refused = evaluate(tmp_path, "--ood digits --trust")
    assert refused.code == 2
    assert f"--ood digits: task = '{task}' does not predict" in refused.stderr
    refused = evaluate(tmp_path, "--attack pgd apgd --epsilon 0.1 --trust")
    assert refused.code == 2
    assert "--attack apgd-ce requires one class per image" in refused.stderr


@pytest.mark.slow
def test_corruptions_are_over_a_baseline(folder: Path):
    first = found(folder, "--checkpoint latest --corruptions")
    corrupted = first["corruptions"]
    assert corrupted["table"] == "CIFAR-10-C" and corrupted["relative"] is None
    assert corrupted["clean_error"] == 1 - first["metrics"]["accuracy"]
    errors = np.array(list(corrupted["errors"].values()))
    assert errors.shape == (15, 5)
    assert corrupted["mean_error"] == pytest.approx(errors.mean())
    assert errors.mean() > corrupted["clean_error"]
    (folder / "found.json").rename(folder / "baseline.json")
    words = "--checkpoint latest --corruptions --baseline baseline.json"
    again = found(folder, words, JAX_NUM_CPU_DEVICES="8")["corruptions"]
    np.testing.assert_array_equal(list(again["errors"].values()), errors)
    assert again["relative"]["mean"] == pytest.approx(1)
