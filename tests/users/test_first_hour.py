"""The first hour of a user with a messy folder of images, from `new` to a report."""

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from jaxtrain.config.recipe import load_config
from tests.helpers.messy import Messy, make_messy
from tests.helpers.processes import Cli, awaiting_signal, stopped_steps
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines
from tests.helpers.zoo import read_report

# Small images and a short run, as somebody tries it out.
TRAIN = ("--config", "birds.py", "--data.image-size", 32, "--train.epochs", 40)
PASSED_OVER = "2 .cr2, 2 .db, 2 .txt, 1 .md; 1 images outside the class folders: stray"


def words_of(text: str) -> str:
    """Return the text of a table on one line, without its frame."""
    return " ".join(text.replace("│", " ").split())


def follow(cli: Cli, *words: object) -> str:
    result = cli.done(*words)
    return words_of(result.stdout)


def interrupt_and_resume(cli: Cli) -> None:
    """Train in processes of their own: Ctrl-C in the midst, then to the end."""
    first = cli.start(*TRAIN, program=awaiting_signal(60, last_word=TRAIN[-1]))
    wait_for_lines(cli.directory / "runs" / "birds" / "metrics.jsonl", 3, first)
    first.send_signal(signal.SIGINT)
    stdout, stderr = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130, stderr
    assert PASSED_OVER in words_of(stdout)
    again = cli.process(*TRAIN)
    assert again.code == 0, again.stderr
    (saved,) = stopped_steps(stderr)
    events = [line for line in read_metrics(cli.directory) if line["kind"] == "event"]
    resumed = [line["step"] for line in events if line["event"] == "resumed"]
    assert resumed == [saved] and saved < read_metrics(cli.directory)[-1]["step"]


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "runs" / "birds" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def check_predictions(path: Path, messy: Messy) -> None:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == messy.num_images + 1  # One lies in no class.
    assert sum(bool(row["error"]) for row in rows) == messy.num_damaged
    good = [row for row in rows if not row["error"]]
    hits = [f"/{row['label']}/" in row["filename"] for row in good]
    assert np.mean(hits) > 0.9
    assert sum(row["filename"].endswith(".HEIC") for row in good) >= 12


@pytest.mark.plugins
@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_from_a_messy_folder_to_a_report(tmp_path: Path, cli: Cli):
    messy = make_messy(tmp_path / "birds", num=36)
    told = follow(cli, "new", "--data", "birds", "--out", "birds.py")
    assert PASSED_OVER in told and "time about" in told
    assert "python main.py evaluate --workdir runs/birds" in told
    assert load_config(tmp_path / "birds.py").model.name == "convnet"
    told = follow(cli, "data", "--check", "--config", "birds.py")
    kinds = {f["kind"] for f in read_report(tmp_path / "data_report")["findings"]}
    assert {"passed_over", "nested", "unreadable"} <= kinds
    follow(cli, "data", "--preview", "--config", "birds.py")
    interrupt_and_resume(cli)
    workdir = tmp_path / "runs" / "birds"
    assert read_summary(workdir)["eval"]["accuracy"] > 0.9

    tune = ("new", "--data", "birds", "--pretrained", "runs/birds", "--out", "tuned.py")
    follow(cli, *tune)
    tuned = load_config(tmp_path / "tuned.py")
    assert tuned.train.fine_tune and tuned.data.image_size == 32
    # Shorter than its warm-up would be, if that were a number of epochs.
    follow(cli, "--config", "tuned.py", "--train.epochs", 2)
    assert read_summary(tmp_path / "runs" / "tuned")["eval"]["accuracy"] > 0.9

    follow(cli, "evaluate", "--workdir", "runs/birds", "--calibrate")
    follow(cli, "predict", "--workdir", "runs/birds", "--out", "found.csv", "birds")
    check_predictions(tmp_path / "found.csv", messy)
    export = ("export", "--workdir", "runs/birds", "--format", "onnx")
    follow(cli, *export, "--out", "birds.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "birds.onnx")
    (given,) = session.get_inputs()
    assert len(given.shape) == 4
    follow(cli, "checkpoint", "--verify", "--workdir", "runs/birds")
    follow(cli, "report", "--workdir", "runs/birds", "--out", "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Hühner" in page
    assert json.loads((workdir / "data.json").read_text())["num_examples"]
    assert os.path.getsize(tmp_path / "preview.png") > 1000
