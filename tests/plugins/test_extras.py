"""Plug-ins whose libraries are not installed: one message, with what installs them."""

from pathlib import Path

import pytest

from jaxtrain import extras
from jaxtrain.cli import main
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row

# Plug-in -> words, and what installs its libraries: an extra, or a target of make.
MISSING = {
    "doctor": ("data --prepare tfds:mnist --data-dir {new}", "tfds-prepare"),
    "litert": ("export --workdir {run} --format litert --out {new}", "make litert"),
    "onnx": ("export --workdir {run} --format onnx --out {new}", "export"),
    "plan": (
        "plan --config {digits} --target h100 --out {new}",
        "make gpu-compiler",
    ),
    "serve": ("serve --workdir {run}", "serve"),
    "sweep": ("sweep --config {digits} --workdir {new} --space {new}", "sweep"),
    "trackers": (
        "--config {digits} --workdir {new} --logging.wandb-project x",
        "wandb",
    ),
}


@each_row("name", MISSING)
def test_the_message_says_what_installs_it(
    name: str,
    digits_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    words, installed_by = MISSING[name]
    new = tmp_path / "new"
    monkeypatch.setattr(extras, "missing", lambda *libraries: libraries[0])
    for variable in ("JAXTRAIN_LITERT", "JAXTRAIN_GPU_COMPILER"):
        monkeypatch.setenv(variable, str(new))
    places = {"run": digits_run, "new": new, "digits": ROOT / "configs" / "digits.py"}
    assert main([word.format(**places) for word in words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and ("needs" in line or "require" in line)
    is_extra = not installed_by.startswith("make")
    assert (extras.install(installed_by) if is_extra else installed_by) in line
    assert not new.exists()
