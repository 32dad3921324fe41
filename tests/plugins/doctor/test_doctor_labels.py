"""Labels that are likely wrong: the formulas, and a run that was trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.plugins.doctor.labels import find_doubts
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe
from tests.helpers.zoo import found, read_report

FLIPPED = '''
from jaxtrain.config import DataConfig
from jaxtrain.data.stores import open_digits


def open_flipped():
    """Open the digits; the labels of every 30th to test are the next class."""
    store, splits = open_digits("", DataConfig(source="digits"))
    wrong = splits["test"][0][::30]
    store.target[wrong] = (store.target[wrong] + 1) % 10
    return store, splits
'''


def as_the_paper_says(
    labels: np.ndarray, probabilities: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Follow equations 1 to 3 of Northcutt et al. 2021, word by word."""
    num, m = probabilities.shape
    thresholds = [
        np.mean([probabilities[x, j] for x in range(num) if labels[x] == j])
        for j in range(m)
    ]
    counts = np.zeros((m, m))
    for x in range(num):
        above = [j for j in range(m) if probabilities[x, j] >= thresholds[j]]
        if above:
            counts[labels[x], max(above, key=lambda j: probabilities[x, j])] += 1
    joint = np.zeros((m, m))
    for i in range(m):
        joint[i] = counts[i] / counts[i].sum() * (labels == i).sum()
    return counts, joint / joint.sum()


def noisy(seed: int, num: int = 3000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return given labels, true labels and the probabilities of a good model."""
    generator = np.random.default_rng(seed)
    noise = np.array(
        [[0.9, 0.1, 0, 0], [0, 0.8, 0, 0.2], [0, 0, 1, 0], [0.05, 0.05, 0, 0.9]]
    )
    true = generator.integers(0, 4, num)
    given = np.array([generator.choice(4, p=noise[k]) for k in true])
    scores = generator.normal(0, 1, (num, 4))
    scores[np.arange(num), true] += generator.uniform(2, 6, num)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return given, true, chances


def test_the_joint_is_that_of_the_paper():
    given, true, probabilities = noisy(0)
    counts, joint = as_the_paper_says(given, probabilities)
    doubts = find_doubts(given, probabilities)
    np.testing.assert_allclose(doubts.joint, joint, atol=1e-12)
    assert len(doubts.wrong) == counts.sum() - np.trace(counts)
    assert doubts.noise == pytest.approx(1 - np.trace(joint))
    # And it estimates what was done to the labels: of 3000 examples, the standard
    # deviation of a part of a fifth is 0.007.
    really = np.zeros((4, 4))
    np.add.at(really, (given, true), 1 / len(given))
    assert np.abs(doubts.joint - really).max() < 0.02
    wrong = given != true
    assert wrong[doubts.wrong].mean() > 0.9
    assert wrong[doubts.wrong].sum() > 0.75 * wrong.sum()
    assert (doubts.better == true[doubts.wrong]).mean() > 0.9


def test_the_most_doubtful_comes_first():
    given, true, probabilities = noisy(2)
    doubts = find_doubts(given, probabilities)
    rows = doubts.wrong
    margin = probabilities[rows, given[rows]] - probabilities[rows, doubts.better]
    assert (np.diff(margin) >= 0).all() and (margin < 0).all()
    first = len(rows) // 2
    wrong = (given != true)[rows]
    assert wrong[:first].mean() > wrong[first:].mean()


def test_labels_that_a_model_agrees_with_are_not_doubted():
    probabilities = np.full((30, 3), 0.1)
    labels = np.arange(30) % 3
    probabilities[np.arange(30), labels] = 0.8
    doubts = find_doubts(labels, probabilities)
    assert len(doubts.wrong) == 0 and doubts.noise == pytest.approx(0)


def test_a_class_without_examples_is_never_the_better_one():
    given, _, probabilities = noisy(3)
    given = np.where(given == 2, 1, given)
    doubts = find_doubts(given, probabilities)
    assert 2 not in doubts.better
    assert doubts.joint[2].sum() == 0 and np.isfinite(doubts.joint).all()


@pytest.mark.slow
def test_a_run_finds_flipped_labels(
    tmp_path: Path, cli: Cli, write_config: Callable[..., Path]
):
    (tmp_path / "flipped.py").write_text(FLIPPED)
    source = f"{tmp_path / 'flipped.py'}:open_flipped"
    config = write_config(
        recipe(
            data=f"DataConfig(source={source!r}, batch_size=64)",
            model='ConvNetConfig(name="convnet", width=0.25)',
            logging="LoggingConfig(tensorboard=False)",
            checkpoint="CheckpointConfig()",
            train="TrainConfig(steps=60)",
        )
    )
    assert cli("--config", config, "--workdir", "run").code == 0
    cli.done("data", "--check", "--workdir", "run", "--trust")
    report = read_report(cli.directory / "data_report")
    flipped = flipped_names(tmp_path, source)
    assert len(flipped) == 12
    doubted = found(report)["wrong_labels"]
    # The model is right 95 times of 100, and some of its mistakes are confident.
    assert len(doubted & flipped) >= 10
    assert len(doubted - flipped) <= 12
    first = next(f for f in report["findings"] if f["kind"] == "wrong_labels")
    assert first["examples"][0]["name"] in flipped
    assert "predicted" in first["examples"][0]["detail"]
    # 12 of the 504 examples of validation and test.
    assert 0.01 < report["label_noise"]["wrong_labels"] < 0.06
    # The config beside it may say the same, and nothing else of the data.
    again = ["data", "--check", "--workdir", "run", "--config", config]
    assert cli(*again).code == 0
    other = cli(*again, "--data.validation-fraction", "0.2")
    assert other.code == 2 and "validation_fraction: 0.1 -> 0.2" in other.stderr


def flipped_names(folder: Path, source: str) -> set[str]:
    space: dict[str, Any] = {}
    exec((folder / "flipped.py").read_text(), space)
    _, splits = space["open_flipped"]()
    return {f"{source}: example {i}" for i in splits["test"][0][::30]}
