"""`main.py serve`."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxtrain import extras
from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--workdir runs/digits --port 8000"
# Maximum number of processes that decode images.
MAX_DECODERS = 4
NEEDED = ("starlette", "uvicorn", "python_multipart")


@dataclass(frozen=True, kw_only=True)
class ServeArguments:
    """Serve the predictions of a trained model over HTTP."""

    workdir: Path = field(
        help="Directory of a run or of a model, a weight file, or hf:OWNER/REPO.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint of a run: best (by validation), latest, or a step number.",
    )
    host: str = field(
        "127.0.0.1",
        help="Address to listen on; 0.0.0.0: all addresses of this machine.",
    )
    port: int = field(
        8000,
        help="Port to listen on; 0 selects a free port.",
    )
    max_batch: int = field(
        32,
        help="Maximum number of images in a batch.",
    )
    max_wait_ms: float = field(
        2.0,
        help="Maximum time in milliseconds that an image waits for others to form a "
        "batch.",
    )
    max_waiting: int = field(
        512,
        help="Maximum number of waiting images; further requests get the status 503.",
    )
    max_per_client: int | None = field(
        None,
        help="Maximum number of open connections per client address; None: half of "
        "--max-waiting.",
    )
    max_bytes: int = field(
        2**24,
        help="Maximum size of a request in bytes.",
    )
    max_pixels: int = field(
        2**26,
        help="Maximum number of pixels of an image; larger images are refused.",
    )
    timeout: float = field(
        30.0,
        help="Time limit of a request in seconds.",
    )
    calibrated: bool = field(
        False,
        help="Divide the logits by the temperature that evaluate --calibrate fitted.",
    )
    trust: bool = trust_option()
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


def run(arguments: ServeArguments, signals: StopSignals) -> None:
    """Load a model, compile it for all batch sizes, and serve it until a signal."""
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
                f"--workdir {arguments.workdir}: task = {model.description.task!r} "
                "cannot be served; give a model that predicts classes, numbers or "
                "boxes"
            )
        fitted = None
        if arguments.calibrated:
            fitted = temperature.read_for(model, arguments.workdir)
        limits = ServiceLimits(
            max_batch=arguments.max_batch,
            max_wait_seconds=arguments.max_wait_ms / 1000,
            max_waiting=arguments.max_waiting,
            # Each connection may occupy a slot in the queue, so by default a client may
            # occupy half of the slots.
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
            f"the command `serve` requires {name}, which is not installed: "
            f"{extras.install('serve')}"
        )
    counts = ("max_batch", "max_waiting", "max_bytes", "max_pixels", "timeout")
    counts += ("max_per_client",)
    for name in counts:
        value = getattr(arguments, name)
        # This comparison also rejects NaN and infinity.
        if value is not None and not 0 < value < math.inf:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} {value}: expected a number above 0")
    if not 0 <= arguments.max_wait_ms < math.inf:
        raise UserError(f"--max-wait-ms {arguments.max_wait_ms}: expected 0 or more")
    if not 0 <= arguments.port < 2**16:
        raise UserError(f"--port {arguments.port}: expected 0 to {2**16 - 1}")
