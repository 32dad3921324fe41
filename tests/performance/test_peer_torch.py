"""The benchmark against PyTorch, where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "peer_torch.py"


@pytest.mark.slow
def test_without_pytorch_it_says_what_to_do(tmp_path: Path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    words = [sys.executable, str(PROGRAM), "--peer-python", str(bare)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    message = done.stderr.splitlines()[-1]
    assert f"--peer-python {bare}: No module named" in message
    assert "pip install torch" in message
