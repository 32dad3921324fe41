"""The commands of docs/tutorial.md, run one after another on a small folder."""

import csv
import http.client
import re
import shlex
import signal
from pathlib import Path

import onnxruntime
import pytest

from tests.helpers.messy import picture
from tests.helpers.processes import ROOT, Cli, awaiting_signal, stopped_steps
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines

TEXT = (ROOT / "docs" / "tutorial.md").read_text()
COMMANDS = re.findall(r"^    python main\.py (.*)$", TEXT, re.MULTILINE)
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
NUM_NEW = 4


def make_photos(folder: Path) -> None:
    for number, name in enumerate(("cats", "dogs")):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(40):
            picture(number, i).save(folder / "photos" / name / f"{i}.png")
    (folder / "new_photos").mkdir()
    for i in range(NUM_NEW):
        picture(i % 2, 100 + i).save(folder / "new_photos" / f"{i}.png")


def train_until_interrupted(cli: Cli, words: list[str]) -> None:
    process = cli.start(*words, program=awaiting_signal(30, last_word=words[-1]))
    wait_for_lines(cli.directory / "runs/photos/metrics.jsonl", 2, process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, stderr
    assert stopped_steps(stderr)


def serve_one_request(cli: Cli, words: list[str]) -> None:
    process = cli.start(*words, "--port", 0)
    assert process.stdout is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    (path,) = re.findall(r'curl .*"http://127\.0\.0\.1:8000(.*)"', TEXT)
    image = (cli.directory / "new_photos" / "0.png").read_bytes()
    connection.request("POST", path, body=image)
    answer = connection.getresponse()
    assert answer.status == 200 and b'"cats"' in answer.read()
    connection.close()
    process.terminate()
    assert process.wait(timeout=PATIENCE) == 143


@pytest.mark.plugins
@pytest.mark.exhaustive
def test_the_commands_of_the_tutorial(
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    make_photos(tmp_path)
    trainings = [command for command in COMMANDS if command.startswith("--config")]
    assert len(COMMANDS) >= 10 and len(trainings) == 2 and len(set(trainings)) == 1
    interrupted = False
    for command in COMMANDS:
        words = shlex.split(command)
        if command in trainings and not interrupted:
            train_until_interrupted(cli, words)
            interrupted = True
        elif words[0] == "serve":
            serve_one_request(cli, words)
        else:
            result = cli(*words)
            assert result.code == 0, (command, result.stderr)
    assert read_summary(tmp_path / "runs" / "photos")["eval"]["accuracy"] > 0.8
    with (tmp_path / "predictions.csv").open(newline="") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    assert labels == ["cats", "dogs"] * (NUM_NEW // 2)
    assert onnxruntime.InferenceSession(tmp_path / "photos.onnx").get_inputs()
    for name in ("preview.png", "report.html", "data_report/data_report.html", "model"):
        assert (tmp_path / name).exists()
    monkeypatch.chdir(tmp_path)
    exec(PROGRAM, {})
    assert capsys.readouterr().out == "['cats', 'dogs']\n"
