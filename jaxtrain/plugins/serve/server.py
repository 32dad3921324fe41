"""HTTP server: socket, compilation and shutdown."""

import socket
from typing import Any

import jax
import numpy as np
import uvicorn

from jaxtrain.errors import Interrupted, UserError
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.serve.app import make_app
from jaxtrain.plugins.serve.connections import Connections
from jaxtrain.plugins.serve.limits import ServiceLimits
from jaxtrain.plugins.serve.program import Program, make_program

# Maximum number of connections that wait to be accepted.
BACKLOG = 1024


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket.

    Raises:
      UserError: The address is unavailable.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        opened.close()
        raise UserError(
            f"--host {host} --port {port}: cannot listen on this address "
            f"({getattr(error, 'strerror', None) or error}): choose another --host or "
            "--port"
        ) from None
    return opened


def serve(
    model: TrainedModel,
    limits: ServiceLimits,
    opened: socket.socket,
    temperature: float | None = None,
) -> None:
    """Serve until a signal; pending requests are completed before shutdown.

    Args:
      model: Model to serve.
      limits: Limits of requests and batches.
      opened: Socket that already listens.
      temperature: Divisor of the logits, for classifiers. Defaults to 1.
    """
    program = make_program(model, temperature)
    _compile(model, program, limits.max_batch)
    host, port = opened.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(
        f"serving {model.description.model.name} at http://{shown}:{port}", flush=True
    )
    try:
        make_server(model, limits, program).run(sockets=[opened])
    except Interrupted as stopped:
        detail = "pending requests were completed"
        raise Interrupted(stopped.signum, detail) from None


def make_server(
    model: TrainedModel, limits: ServiceLimits, program: Program | None = None
) -> uvicorn.Server:
    """Create the server, which is not yet running."""
    # uvicorn's annotation of `http` is a class, but any callable works.
    protocol: Any = Connections(limits).protocol
    config = uvicorn.Config(
        make_app(model, limits, program),
        http=protocol,
        ws="none",
        # Silence warnings on requests that are not HTTP.
        log_level="error",
        timeout_graceful_shutdown=max(1, round(limits.timeout_seconds)),
        timeout_keep_alive=5,
    )
    return uvicorn.Server(config)


def _compile(model: TrainedModel, program: Program, max_batch: int) -> None:
    """Compile the program for all batch sizes, before the first request."""
    about = model.description
    for exponent in range((max_batch - 1).bit_length() + 1):
        # Batches are padded to the next power of two.
        pixels = np.zeros((2**exponent, *about.whole_shape), about.stored_dtype)
        jax.block_until_ready(program(pixels))
