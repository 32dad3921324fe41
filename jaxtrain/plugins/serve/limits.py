"""Limits of the server, in total and per client, request and image."""

import resource
from dataclasses import dataclass

# Number of file descriptors reserved for uses other than client connections.
RESERVED_DESCRIPTORS = 128
MAX_CONNECTIONS = 4096


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """Limits of the server.

    Attributes:
      max_batch: Maximum number of images in a batch.
      max_wait_seconds: Maximum time that the first image of a batch waits for others.
      max_waiting: Maximum number of images in the server: being read, decoded, queued
        or computed.
      max_per_client: Maximum number of open connections per client (see `client_of`).
      max_open: Maximum number of open connections in total.
      max_bytes: Maximum size of a request body in bytes.
      max_pixels: Maximum number of pixels of an image.
      timeout_seconds: Time limit of a request, from its header to the response.
      num_decoders: Number of decoding processes.
      decode_seconds: CPU time limit of decoding an image, in seconds.
      grace_seconds: Time limit for receiving a request, from its first byte, or from
        the start of a new connection.
      bytes_per_second: Number of received bytes that extend `grace_seconds` by 1 s.
      stalled_seconds: Idle time after which a connection may be closed to admit a new
        one.
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
    # Decoding 64 million pixels of noise takes 1 to 4 seconds in every format.
    decode_seconds: float = 10.0
    grace_seconds: float = 10.0
    bytes_per_second: float = 2.0**14
    stalled_seconds: float = 1.0


class RefusedError(Exception):
    """Refusal of a request, with an HTTP status and a reason."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


def most_connections() -> int:
    """Maximum number of connections that the limit of file descriptors allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - RESERVED_DESCRIPTORS))
