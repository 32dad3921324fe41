"""What makes a model smaller, together: pruning, 8 bits, fewer channels.

Each case trains, is stopped among its phases and goes on to the same bits; and what one
promises holds with the other: zeros are zeros in an int8 file, channels are few.
"""

import numpy as np
import onnx
import pytest

from jaxtrain import load_model
from jaxtrain.trees import by_path
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.tiers import thinned

STEPS = 8
RECIPE = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    model='ConvNetConfig(name="convnet", width=0.125)',
    train=f"TrainConfig(steps={STEPS}, ema_decay=0.9)",
    checkpoint="CheckpointConfig(every_steps=2)",
    logging="LoggingConfig(every_steps=2, tensorboard=False, report=False)",
)
PIECES: dict[str, str] = {
    "sparse": "--prune.sparsity 0.75 --prune.layers conv2",
    "pattern": "--prune.pattern 2:4 --prune.layers conv2",
    "int8": "--model.quantize int8 --optimizer.schedule linear",
    "fewer": "--model.channels conv1 4",
}
CASES = [("sparse", "int8", "fewer"), ("pattern", "int8", "fewer")]


@pytest.mark.plugins
@pytest.mark.parametrize("case", thinned(2, map(pytest.param, CASES)), ids="-".join)
def test_they_go_together(cli: Cli, case: tuple[str, ...]):
    write_recipe(cli.directory / "recipe.py", RECIPE)
    options = " ".join(PIECES[name] for name in case).split()
    words = ["--config", "recipe.py", *options, "--workdir"]
    cli.done(*words, "whole")
    for stop in (3, 7):
        cli.done(*words, "parts", "--train.stop-after-steps", stop)
    cli.done(*words, "parts")
    whole, parts = cli.directory / "whole", cli.directory / "parts"
    assert_same_run(whole, parts, STEPS)
    assert np.isfinite(read_summary(whole)["eval"]["loss"])
    kernel = np.asarray(
        by_path(load_model(whole, "latest").params)["conv2/kernel"],
    )
    assert kernel.shape[-2] == 4
    part = 0.75 if "sparse" in case else 0.5
    assert (kernel == 0).mean() == pytest.approx(part, abs=0.01)
    told = read_lines(whole, "train")[-1]["sparsity"]
    assert told == pytest.approx(part, abs=0.01)
    # Zeros are zeros in an int8 file, too.
    words = "export --workdir whole --format onnx --checkpoint latest --out model.onnx"
    cli.done(*words.split())
    graph = onnx.load(cli.directory / "model.onnx").graph
    arrays = map(onnx.numpy_helper.to_array, graph.initializer)
    kernels = [x for x in arrays if x.dtype == np.int8 and x.ndim == 4]
    (pruned,) = (x for x in kernels if x.shape[1] == 4)
    assert (pruned == 0).mean() >= part - 0.01
    assert all((x == 0).mean() < 0.2 for x in kernels if x is not pruned)
