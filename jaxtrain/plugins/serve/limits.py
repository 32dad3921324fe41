"""What the server takes: of all clients, of one of them, of a request, of an image."""

import resource
from dataclasses import dataclass

# Descriptors left to everything that is no connection.
RESERVED_DESCRIPTORS = 128
MAX_CONNECTIONS = 4096


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """What the server takes.

    Attributes:
      max_batch: Number of images in a batch at most.
      max_wait_seconds: Time that the first image of a batch waits for others.
      max_waiting: Number of images that are decoded, wait or are computed at once.
      max_per_client: Number of connections that one address may have open.
      max_open: Number of connections in all.
      max_bytes: Number of bytes of a request.
      max_pixels: Number of pixels of an image.
      timeout_seconds: Time for a request, from its first byte to its answer.
      num_decoders: Number of processes that decode images.
      decode_seconds: CPU time that the decoding of an image may take.
      grace_seconds: Time that a request may take from its first byte to the last of
        its body, or a new connection until then.
      bytes_per_second: Rate of a body for each second of which one is added.
      stalled_seconds: Time after which a connection on which nothing has come makes
        way for a new one where there are too many.
    """

    max_batch: int
    max_wait_seconds: float
    max_waiting: int
    max_per_client: int
    max_open: int
    max_bytes: int
    max_pixels: int
    timeout_seconds: float
    num_decoders: int
    # 64 million pixels of noise take 1 to 4 seconds, whatever the format.
    decode_seconds: float = 10.0
    grace_seconds: float = 10.0
    bytes_per_second: float = 2.0**14
    stalled_seconds: float = 1.0


class RefusedError(Exception):
    """A request that is answered with an error: the status, and why."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


def most_connections() -> int:
    """Return how many connections the process has descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - RESERVED_DESCRIPTORS))
