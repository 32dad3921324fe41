"""PyTorch in a process of its own, as its benchmark speaks to it."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from pairs import Seconds
from peer_cases import Case

from jaxtrain.errors import UserError

PROGRAM = Path(__file__).resolve().parent / "torch_process.py"


class Peer:
    """PyTorch in a process of its own, by the interpreter that has it."""

    def __init__(self, python: str):
        self.process = subprocess.Popen(
            [python, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = self._answer()
        if "missing" in hello:
            raise UserError(
                f"--peer-python {python}: {hello['missing']}; install PyTorch there "
                "(pip install torch), or name the interpreter of an environment that "
                "has it"
            )
        self.version = hello["torch"]

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise UserError(
                f"the process of PyTorch ended ({self.process.wait()}): see above"
            )
        return json.loads(line)

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self._answer()

    def begin(
        self, arrays: dict[str, np.ndarray], case: Case, **options: Any
    ) -> dict[str, Any]:
        """Have it begin a training, and take the first steps.

        Args:
          arrays: Weights and batch, as `plain_torch.Training` takes them.
          case: What is trained.
          **options: Other arguments of `torch_process.begin`.

        Returns:
          `found`: losses, and norms of the gradients; or `failed`: why there are none.
        """
        name, arguments = case.peer
        channels, *size = arrays["images"].shape[1:]
        arguments = {"image_shape": [*size, channels], "num_classes": 10, **arguments}
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            return self.ask(
                arrays=file.name,
                model={"name": name, "arguments": arguments},
                device="cpu" if jax.default_backend() == "cpu" else "cuda",
                **options,
            )

    def turn(self, variant: str, steps: int) -> Seconds:
        wall, cpu = self.ask(turn=variant, steps=steps)
        return wall, cpu
