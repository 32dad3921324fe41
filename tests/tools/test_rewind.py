"""Lottery tickets: which weights they have, and that a run keeps to them."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxtrain import keys, load_model
from jaxtrain.cli import main
from jaxtrain.config.recipe import read_run
from jaxtrain.inference.model import TrainedModel
from jaxtrain.run.setup import build_setup
from jaxtrain.tools.rewind import rewind
from jaxtrain.trees import by_path
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

RECIPE = recipe(
    seed="3",
    data='DataConfig(source="digits", batch_size=64)',
    model='ModelConfig(name="convnet", width=0.25)',
    train="TrainConfig(steps=40, eval_every_epochs=99)",
    checkpoint="CheckpointConfig(every_steps=10, keep=9)",
)
SPARSE = ("--prune.sparsity", "0.8", "--prune.every-epochs", "0.2")


def kernels(model: TrainedModel) -> dict[str, np.ndarray]:
    found = {path: np.asarray(x) for path, x in by_path(model.params).items()}
    return {path: x for path, x in found.items() if x.ndim > 1}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pruned run, `sparse`, and one that is not, `dense`."""
    folder = tmp_path_factory.mktemp("rewind")
    config = str(write_recipe(folder / "recipe.py", RECIPE))
    words = ["--config", config, "--workdir"]
    assert main([*words, str(folder / "sparse"), *SPARSE]) == 0
    assert main([*words, str(folder / "dense"), "--train.steps", "10"]) == 0
    return folder


@pytest.mark.parametrize("step", [0, 20])
def test_a_ticket_has_the_early_weights_that_stay(step: int, here: Path):
    sparse, out = here / "sparse", here / f"ticket{step}"
    words = ["rewind", "--workdir", str(sparse), "--to", str(step), "--out", str(out)]
    assert main(words) == 0
    last, found = load_model(sparse, "latest"), load_model(out)
    if step:
        early = load_model(sparse, step)
    else:
        setup = build_setup(read_run(sparse))
        params, _ = jax.jit(setup.create.weights)(keys.root_key(3))
        early = by_path(params)
    early = kernels(early) if isinstance(early, TrainedModel) else early
    zeros = sum(int((x == 0).sum()) for x in kernels(last).values())
    assert zeros > 0
    for path, x in kernels(found).items():
        gone = kernels(last)[path] == 0
        # XLA may compute a draw in another program to the last bit.
        np.testing.assert_allclose(x[~gone], early[path][~gone], rtol=1e-6)
        assert not x[gone].any() and x[~gone].all()
        zeros -= int(gone.sum())
    assert zeros == 0


@pytest.mark.slow
def test_a_run_from_a_ticket_keeps_its_zeros(here: Path):
    out, run = here / "ticket", here / "winning"
    words = ["rewind", "--workdir", str(here / "sparse"), "--to", "10", "--out"]
    assert main([*words, str(out)]) == 0
    words = ["--config", str(here / "recipe.py"), "--workdir", str(run), *SPARSE[:2]]
    words += ["--model.pretrained", str(out), "--prune.end-epochs", "0"]
    assert main(words) == 0
    before, after = kernels(load_model(out)), kernels(load_model(run, "latest"))
    for path, x in after.items():
        np.testing.assert_array_equal(x == 0, before[path] == 0)
        assert not np.array_equal(x, before[path])


def test_a_weight_that_is_zero_by_chance_is_no_pruned_one(here: Path):
    sparse = load_model(here / "sparse", "latest")
    early = load_model(here / "sparse", 10)
    path = "conv2/kernel"
    array = np.array(by_path(early.params)[path])
    array[:] = 0
    early.params["conv2"]["kernel"] = array
    found = kernels(rewind(sparse, early).model)[path]
    np.testing.assert_array_equal(found == 0, kernels(sparse)[path] == 0)
    assert np.abs(found).max() <= np.finfo(np.float32).tiny


@each_row(
    ("run", "words", "told"),
    [
        ("dense", "--to 0", "has pruned no weights"),
        ("sparse", "--to 7", "the steps 10, 20"),
        ("sparse", "--to -1", "--to -1: expected 0 or more"),
        ("nowhere", "--to 0", "not the folder of a run"),
    ],
)
def test_what_is_refused(
    run: str, words: str, told: str, here: Path, tmp_path: Path, capsys: object
):
    out = tmp_path / "out"
    given = ["rewind", "--workdir", str(here / run), *words.split(), "--out", str(out)]
    assert main(given) == 2
    assert told in capsys.readouterr().err  # pyright: ignore
    assert not out.exists()


@pytest.mark.slow
def test_first_weights_that_the_seed_does_not_say_are_refused(
    here: Path, tmp_path: Path, capsys: object
):
    config = ["--config", str(here / "recipe.py"), *SPARSE]
    others = {
        "tuned": ["--model.pretrained", str(here / "dense")],
        "whitened": ["--model.name", "whitened_cnn_small", "--model.width", "0.25"],
    }
    told = {"tuned": "began with the weights of", "whitened": "come from the images"}
    for name, words in others.items():
        run = tmp_path / name
        if name == "whitened":
            words += ["--data.image-size", "12", "--train.freeze", "whiten"]
        assert main([*config, *words, "--workdir", str(run)]) == 0
        given = ["rewind", "--workdir", str(run), "--to", "0"]
        assert main([*given, "--out", str(tmp_path / "out")]) == 2
        assert told[name] in capsys.readouterr().err  # pyright: ignore
