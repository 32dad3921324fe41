"""Invalid values and problems of the start in one message, in each command."""

from pathlib import Path

import pytest

from jaxtrain import cli

WRONG = "--optimizer.learning-rate -1 --train.epochs 0 --optimizer.name adm"
WRONG += " --data.source digitz"


@pytest.mark.parametrize(
    "command",
    [
        "find-lr",
        "plan --target h100",
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in ("sweep --space x.py", "find-batch", "scale --devices 1,2")
        ),
    ],
)
def test_a_command_reports_values_and_start_together(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command.split(), "--config", "digits", *WRONG.split()]) == 2
    told = capsys.readouterr().err
    assert "4 problems" in told
    for field in ("learning_rate = -1", "epochs = 0", "'adm'", "'digitz'"):
        assert field in told
    assert not list(tmp_path.iterdir())
