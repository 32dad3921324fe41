"""Limits of the server: total, per client, per request, per image."""

import resource
from dataclasses import dataclass

# File descriptors reserved for files, pipes and sockets other than connections.
RESERVED_DESCRIPTORS = 128
MAX_CONNECTIONS = 4096


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """Limits of the server.

    Attributes:
      max_batch: Largest number of images in a batch.
      max_wait_seconds: Longest time that the first image of a batch waits for others.
      max_waiting: Largest number of images decoded, queued or computed at once.
      max_per_client: Largest number of open connections per address.
      max_open: Largest number of open connections.
      max_bytes: Largest size of a request in bytes.
      max_pixels: Largest number of pixels of an image.
      timeout_seconds: Time limit of a request, from first byte to response.
      num_decoders: Number of decoding processes.
      decode_seconds: CPU time limit of decoding an image.
      grace_seconds: Time limit from the first byte of a request (or a new connection)
        to the last byte of its body.
      bytes_per_second: Number of received bytes that extend `grace_seconds` by 1 s.
      stalled_seconds: Idle time after which a connection may be dropped in favour of
        a new one.
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
    """Refusal of a request: HTTP status and reason."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


def most_connections() -> int:
    """Largest number of connections that the file-descriptor limit allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - RESERVED_DESCRIPTORS))
