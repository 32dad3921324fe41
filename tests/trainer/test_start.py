"""What a run imports before its first step, and which programs it compiles."""

import json
from typing import Any

import pytest

from tests.helpers.processes import ROOT, Cli, Result

# Of two epochs: two evaluations, two checkpoints and the test.
RUN = [
    *(
        "--config",
        ROOT / "configs/digits.py",
        "--train.epochs",
        "2",
        "--train.eval-every-epochs",
        "1",
    ),
    *("--checkpoint.every-epochs", "1", "--optimizer.warmup-epochs", "1"),
    *("--model.width", "0.25", "--model.dropout", "0", "--data.batch-size", "256"),
    *("--logging.report", "False"),
]
# Writes the name of each program that was compiled, or read from the cache.
COUNTING = """
import json, sys
import jax
from jax.monitoring import register_event_duration_secs_listener
from jaxtrain.cli import main

names = []

def listen(event, seconds, fun_name="", **_):
    if event == "/jax/core/compile/backend_compile_duration":
        names.append(fun_name)

register_event_duration_secs_listener(listen)
code = main(sys.argv[1:])
print(json.dumps(names))
sys.exit(code)
"""
# Writes the modules that are imported when the first step has been called.
LISTING = """
import json, os, sys
from jaxtrain.cli import main
from jaxtrain.trainer.callback import Callback

def on_step_end(callback, run, metrics):
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)

Callback.on_step_end = on_step_end
main(sys.argv[1:])
"""


def last_line(result: Result) -> list[str]:
    assert result.code == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_each_program_is_compiled_once(cli: Cli):
    """Evaluations, saves and a resumed run included; operations alone compile none.

    The resumed run finds every program in the persistent cache.
    """
    cache = cli.directory / "cache"
    start: Any = {"program": COUNTING, "JAX_COMPILATION_CACHE_DIR": str(cache)}

    def cached() -> set[str]:
        return {path.name for path in cache.iterdir() if path.name.endswith("-cache")}

    stop = ["--train.stop-after-steps", "5"]
    first = last_line(cli.process(*RUN, *stop, **start))
    programs = cached()
    assert len(programs) >= 3  # To create the state, to train, to evaluate.
    # JAX makes a key of a seed by the first two.
    key = ["stage", "_threefry_seed"]
    names = ["weights", "begin", "root_key", "train_step", "eval_step"]
    assert first == [f"jit({name})" for name in key + names]
    resumed = last_line(cli.process(*RUN, anew=True, **start))
    # The test split has more than one batch.
    again = ["root_key", "train_step", "eval_step", "add_sums"]
    assert resumed == [f"jit({name})" for name in again]
    more = {name.partition("-")[0] for name in cached() - programs}
    assert more == {"jit_add_sums"}


@pytest.mark.slow
def test_a_run_imports_what_its_steps_need(cli: Cli):
    """What its end needs, such as its report, is imported; see docs/decisions.md."""
    modules = set(last_line(cli.process(*RUN, program=LISTING, anew=True)))
    assert "orbax.checkpoint" in modules
    unused = {"sklearn", "scipy.special", "pandas", "pyarrow", "grain", "matplotlib"}
    unused |= {"wandb", "tensorflow", "tensorflow_datasets", "torch", "onnx", "uvicorn"}
    assert not unused & modules
