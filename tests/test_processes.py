"""Several processes over loopback: the run of one process."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.conftest import ROOT, Cli, read_lines, read_summary, recipe

PROGRAM = """
import sys
from pathlib import Path

import jax

port, number, config, workdir = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(number))

from jaxtrain.cli import load_config
from jaxtrain.train import train

if __name__ == "__main__":
    train(load_config(Path(config)), Path(workdir))
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_two_processes_train_like_one(cli: Cli, write_config, tmp_path: Path):
    """Each loads its half of every batch, here from a stream."""
    config = write_config(
        recipe(
            data='DataConfig(source="digits", batch_size=64, cache="stream", '
            "augment=AugmentConfig(crop_padding=1))",
            train="TrainConfig(steps=12, eval_every_steps=6)",
            logging="LoggingConfig(every_steps=1)",
        )
    )
    assert cli("--config", config, "--workdir", "one").code == 0
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    port, workdir = free_port(), tmp_path / "two"
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                str(program),
                str(port),
                str(i),
                str(config),
                str(workdir),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    one, two = read_summary(tmp_path / "one"), read_summary(workdir)
    assert (two["num_processes"], two["num_devices"]) == (2, 2)
    losses = [
        np.array([line["loss"] for line in read_lines(folder, "train")])
        for folder in (tmp_path / "one", workdir)
    ]
    # Float32 sums over the batch in another order, over a few steps.
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert two["eval"]["num_examples"] == one["eval"]["num_examples"] == 360
    np.testing.assert_allclose(two["eval"]["loss"], one["eval"]["loss"], rtol=1e-4)
