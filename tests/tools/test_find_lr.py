"""The learning rate that a range test suggests."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.tools.find_lr import RangeTest, smooth, suggest, valley
from tests.helpers.processes import ROOT
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines
from tests.helpers.words import quoted

# The run would skip loss spikes, such as those that end the test.
TINY = recipe(
    checkpoint="CheckpointConfig()",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
    train="TrainConfig(steps=2, spike_sigma=1)",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, and what the command found for it."""
    folder = tmp_path_factory.mktemp("found")
    write_recipe(folder / "recipe.py", TINY)
    words = (
        f"--config {quoted(folder)}/recipe.py --out {quoted(folder)} --start "
        "1e-4 --end 1000"
    )
    assert main(["find-lr", *shlex.split(words), "--steps", "60"]) == 0
    return folder


@pytest.mark.slow
def test_it_rises_by_the_same_factor_until_the_loss_does(found: Path):
    values = json.loads((found / "find_lr.json").read_text())
    rates, smoothed = (np.array(values[n]) for n in ("learning_rate", "smoothed_loss"))
    assert 20 <= len(rates) < 60
    expected = 1e-4 * (1e7) ** (np.arange(len(rates)) / 59)
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert smoothed[-1] > 4 * smoothed.min() or not np.isfinite(values["loss"][-1])
    # Where it falls, and before it does the contrary.
    assert 1e-3 < values["suggested"]["valley"] < rates[np.argmin(smoothed)]
    assert (found / "find_lr.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_first_step_is_that_of_the_run(found: Path, tmp_path: Path):
    assert main(["--config", f"{found}/recipe.py", "--workdir", str(tmp_path)]) == 0
    first = read_lines(tmp_path, "train")[0]["loss"]
    values = json.loads((found / "find_lr.json").read_text())
    assert values["loss"][0] == pytest.approx(first, rel=1e-6)


def test_smoothed_losses_are_weighted_means():
    losses = np.random.default_rng(0).uniform(1, 2, 30)
    for i, smoothed in enumerate(smooth(losses.tolist())):
        weights = 0.98 ** np.arange(i, -1, -1)
        mean = float(weights @ losses[: i + 1] / weights.sum())
        assert smoothed == pytest.approx(mean)


def made(smoothed: np.ndarray) -> RangeTest:
    rates = np.geomspace(1e-6, 10, len(smoothed))
    return RangeTest(rates=rates, losses=smoothed, smoothed=smoothed)


def test_rules_on_a_curve_that_is_known():
    # Flat to 1e-4, down to the least at 0.1, then up: steepest at 10**-2.5.
    log = np.linspace(-6, 1, 701)
    fall = 1 / (1 + np.exp(-4 * (log + 2.5)))
    curve = made(2 - fall + np.maximum(0, log + 0.5) ** 2)
    rules = suggest(curve)
    assert np.log10(rules["steep"]) == pytest.approx(-2.5, abs=0.05)
    part = slice(70, -5)
    least = curve.rates[part][np.argmin(curve.smoothed[part])]
    assert rules["minimum"] == pytest.approx(least / 10)
    assert rules["steep"] * 0.1 < rules["valley"] < least


@each_row("seed", range(5))
def test_the_longest_valley_is_that_of_all_subsequences(seed: int):
    losses = np.random.default_rng(seed).permutation(9).astype(float)
    # Of all subsets that fall, in the order of their places, the longest.
    best, end = 0, 0
    for bits in range(1, 2**9):
        places = [i for i in range(9) if bits >> i & 1]
        falls = all(np.diff(losses[places]) < 0)
        longer = len(places) > best or (len(places) == best and places[-1] < end)
        if falls and longer:
            best, end = len(places), places[-1]
    index = max(0, end - best) + int(best / 3) + int(best / 6)
    assert valley(np.arange(9.0), losses) == index


WRONG = {
    "--start 1 --end 0.1: expected 0 < start": "--start 1 --end 0.1",
    "< end <= 1e+06": "--end 1e30",
    "--steps 5: expected 20 or more": "--steps 5",
    "the loss diverged after": "--start 1e5 --end 1e6",
    "has no learning rate": "--optimizer.name lbfgs --out {found}/new/lr",
    "'prodigy' estimates the learning rate": "--optimizer.name prodigy",
    "not writable": "--out /proc/none",
    "find_lr.png is a directory: give a file name": "--out {found}/taken",
}


@pytest.mark.slow
@each_row("message", WRONG)
def test_what_does_not_fit_is_told(
    found: Path, capsys: pytest.CaptureFixture[str], message: str
):
    (found / "taken" / "find_lr.png").mkdir(parents=True, exist_ok=True)
    config, words = found / "recipe.py", WRONG[message].split()
    if "lbfgs" in words:
        config = ROOT / "configs" / "digits.py"
        words += ["--optimizer.learning-rate", "None"]
        words += ["--optimizer.schedule", "constant"]
    words = [word.format(found=found) for word in words]
    assert main(["find-lr", "--config", str(config), "--out", str(found), *words]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in (found / "taken").iterdir()] == ["find_lr.png"]
    assert not (found / "new").exists()
