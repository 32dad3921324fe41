"""`main.py serve`."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxtrain import extras
from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--workdir runs/digits --port 8000"
# Processes that decode images.
MAX_DECODERS = 4
NEEDED = ("starlette", "uvicorn", "python_multipart")


@dataclass(frozen=True, kw_only=True)
class ServeArguments:
    """Answer requests with the predictions of a trained model."""

    # Folder of a run or of a model, a file of weights, or hf:OWNER/REPO.
    workdir: Path
    # Of a run: best, latest or a step.
    checkpoint: str = "best"
    # Address that is listened at; 0.0.0.0: all that this machine has.
    host: str = "127.0.0.1"
    # Port; 0: a free one.
    port: int = 8000
    # Images that are computed together, at most.
    max_batch: int = 32
    # Milliseconds that an image waits for others to go along with it.
    max_wait_ms: float = 2.0
    # Images that may wait; beyond them a request is answered with 503.
    max_waiting: int = 512
    # Connections that one address may have open; None: half of --max-waiting.
    max_per_client: int | None = None
    # Bytes of a request, at most.
    max_bytes: int = 2**24
    # An image of more pixels is refused.
    max_pixels: int = 2**26
    # Seconds that a request may take.
    timeout: float = 30.0
    # Divide the logits by the temperature that evaluate --calibrate has fitted.
    calibrated: bool = False
    # Load the parts of your own (code) that the folder names: their files are shown,
    # and compared with the recorded digests.
    trust: bool = False
    # What to run on; auto: what JAX finds, but never the CPU of a machine with a GPU.
    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"


def run(arguments: ServeArguments, signals: StopSignals) -> None:
    """Load the model, compile it for all batch sizes, and serve until stopped."""
    _check(arguments)
    from jaxtrain.inference import temperature
    from jaxtrain.inference.load import load_model
    from jaxtrain.parallel import devices
    from jaxtrain.plugins.serve.limits import ServiceLimits, most_connections
    from jaxtrain.plugins.serve.server import listen, serve
    from jaxtrain.weights.trust import trust

    with listen(arguments.host, arguments.port) as socket:
        if arguments.trust:
            trust(arguments.workdir)
        devices.start(arguments.platform)
        model = load_model(arguments.workdir, arguments.checkpoint)
        model.description.input.check_installed()
        if model.decoder.answer_parts() is None:
            raise UserError(
                f"--workdir {arguments.workdir}: task = {model.description.task!r} has "
                "no classes or numbers of whole images to tell, and no boxes"
            )
        fitted = None
        if arguments.calibrated:
            fitted = temperature.read_for(model, arguments.workdir)
        limits = ServiceLimits(
            max_batch=arguments.max_batch,
            max_wait_seconds=arguments.max_wait_ms / 1000,
            max_waiting=arguments.max_waiting,
            # Incomplete requests hold places: reserve some for other clients.
            max_per_client=arguments.max_per_client
            or max(1, arguments.max_waiting // 2),
            max_open=most_connections(),
            max_bytes=arguments.max_bytes,
            max_pixels=arguments.max_pixels,
            timeout_seconds=arguments.timeout,
            num_decoders=min(MAX_DECODERS, len(os.sched_getaffinity(0))),
        )
        serve(model, limits, socket, fitted)


def _check(arguments: ServeArguments) -> None:
    if name := extras.missing(*NEEDED):
        raise UserError(
            f"serve needs the extra serve: {extras.install('serve')} ({name} is not "
            "installed)"
        )
    counts = ("max_batch", "max_waiting", "max_bytes", "max_pixels", "timeout")
    counts += ("max_per_client",)
    for name in counts:
        value = getattr(arguments, name)
        # Refuses NaN and infinity, too.
        if value is not None and not 0 < value < math.inf:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} {value}: expected above 0")
    if not 0 <= arguments.max_wait_ms < math.inf:
        raise UserError(f"--max-wait-ms {arguments.max_wait_ms}: expected 0 or more")
    if not 0 <= arguments.port < 2**16:
        raise UserError(f"--port {arguments.port}: expected 0 to {2**16 - 1}")
