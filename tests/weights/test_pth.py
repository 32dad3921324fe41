"""Files of `torch.save`: read by PyTorch alone, with `weights_only=True`."""

import pickle
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.errors import UserError
from jaxtrain.weights import files
from tests.helpers import fake_torch
from tests.helpers.fake_torch import Tensor
from tests.helpers.rows import each_row

STATE = {
    "conv.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "bn.bias": np.array([0.5, -2.0], ml_dtypes.bfloat16),
    "bn.num_batches_tracked": np.array(7, np.int64),
}


def tensors(prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: Tensor(array) for name, array in STATE.items()}


def read(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> Any:
    """Return what is read of a file from which PyTorch loads this value."""
    path = tmp_path / "f.pth"
    path.touch()

    def load(given: Path) -> Any:
        assert given == path
        if isinstance(value, Exception):
            raise value
        return value

    calls = fake_torch.install(patch, load)
    try:
        return files.read(path)
    finally:
        assert calls == [{"map_location": "cpu", "weights_only": True}]


CONTAINED = {
    "alone": tensors(),
    "state_dict": {"epoch": 3, "state_dict": tensors(), "optimizer": {}},
    "model": {"args": [], "model": tensors("module.")},
    "both": {"state_dict": {"model": tensors("module._orig_mod.")}},
}


@each_row("name", CONTAINED)
def test_values_are_those_that_pytorch_loads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = read(CONTAINED[name], tmp_path, monkeypatch)
    assert found.keys() == STATE.keys()
    for key, array in STATE.items():
        assert found[key].dtype == array.dtype
        np.testing.assert_array_equal(found[key], array)


REFUSED = {
    "no dict": ([1], "expected a dict of tensors"),
    "no tensors": ({"model": {"a": 1}}, "expected a dict of tensors"),
    "other value": ({**tensors(), "lr": 0.1}, "lr is not a tensor"),
    "other key": ({**tensors(), 5: Tensor(np.zeros(1))}, "5 is not a tensor"),
    "code": (
        pickle.UnpicklingError("Weights only load failed.\nGLOBAL posix.system"),
        "PyTorch raises UnpicklingError: Weights only load failed",
    ),
    "damage": (RuntimeError("failed finding central directory"), "RuntimeError: fail"),
}


@each_row("name", REFUSED)
def test_other_values_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    value, message = REFUSED[name]
    with pytest.raises(UserError, match=r"f\.pth is not a complete file of torch"):
        try:
            read(value, tmp_path, monkeypatch)
        except UserError as error:
            assert message in str(error)
            raise


def test_without_pytorch_the_message_names_safetensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    fake_torch.remove(monkeypatch)
    path = tmp_path / "resnet50.pth"
    path.touch()
    assert main(["predict", "--workdir", str(path), str(path)]) == 2
    told = capsys.readouterr().err
    assert "requires PyTorch, which is not installed" in told
    assert "pip install torch" in told and str(path) in told


def test_a_version_that_could_run_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls = fake_torch.install(monkeypatch)
    monkeypatch.setattr(sys.modules["torch"], "__version__", "2.5.1+cu121")
    (tmp_path / "f.pth").touch()
    with pytest.raises(UserError, match=r"torch 2\.5\.1\+cu121 could run code .* -U"):
        files.read(tmp_path / "f.pth")
    assert not calls


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_torch.install(monkeypatch)
    (tmp_path / "folder.pth").mkdir()
    for name in ("folder.pth", "none.pth"):
        with pytest.raises(UserError, match=f"{name} cannot be read"):
            files.read(tmp_path / name)
