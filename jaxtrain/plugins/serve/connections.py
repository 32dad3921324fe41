"""What a client may hold of the server: connections, and the time of a request.

uvicorn waits for the header and the body of a request as long as it takes. Here both
must come at some rate, and the connections of an address and of all are bounded.
"""

import asyncio
import contextlib
import ipaddress
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from jaxtrain.plugins.serve.limits import ServiceLimits

REASONS = {408: "Request Timeout", 429: "Too Many Requests", 503: "Service Unavailable"}


class Connections:
    """The connections that are open, by the address of their client."""

    def __init__(self, limits: ServiceLimits):
        self.limits = limits
        self._of_client: dict[str, set[GuardedProtocol]] = {}

    def protocol(self, **options: Any) -> asyncio.Protocol:
        """Return the protocol of a new connection; uvicorn calls it."""
        return GuardedProtocol(self, **options)

    def enter(self, client: str, connection: "GuardedProtocol") -> int | None:
        """Let a connection in, if need be in the place of one that has stalled.

        Returns:
          None, or the status that it is refused with.
        """
        own = self._of_client.get(client, set())
        if len(own) >= self.limits.max_per_client and not self._drop_stalled(client):
            return 429
        num_open = sum(map(len, self._of_client.values()))
        if num_open >= self.limits.max_open:
            most = max(self._of_client, key=lambda name: len(self._of_client[name]))
            if not self._drop_stalled(most):
                return 503
        self._of_client.setdefault(client, set()).add(connection)
        return None

    def leave(self, client: str, connection: "GuardedProtocol") -> None:
        """Forget a connection, which may have been forgotten already."""
        own = self._of_client.get(client, set())
        own.discard(connection)
        if not own:
            self._of_client.pop(client, None)

    def _drop_stalled(self, client: str) -> bool:
        """Close the connection that has stalled longest, and say whether one has."""
        idle = [(c.idle_seconds, c) for c in self._of_client[client]]
        seconds, connection = max(idle, key=lambda pair: pair[0])
        if seconds < self.limits.stalled_seconds:
            return False
        self.leave(client, connection)
        connection.time_out()
        return True


def client_of(host: str) -> str:
    """Return what counts as one client: an IPv4 address, or a network of IPv6."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # Such as "", of a client that has left already.
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # A host has 2^64 addresses to choose from.
    return str(ipaddress.ip_network((int(address), 64), strict=False))


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 with bounds on connections and on how slowly a request may come."""

    def __init__(self, connections: Connections, **options: Any):
        super().__init__(**options)
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        # When the request began that is coming in, what has come of it, and when.
        self._began, self._num_bytes, self._last = 0.0, 0, 0.0
        self._client = ""

    @property
    def idle_seconds(self) -> float:
        """Seconds since the client has sent anything; 0 while it waits for us."""
        waits_for_client = self._timer is not None or (
            self.timeout_keep_alive_task is not None
        )
        return self.loop.time() - self._last if waits_for_client else 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let the connection in, or refuse it, and wait for its first request."""
        super().connection_made(transport)
        self._last = self.loop.time()
        self._client = client_of(self.client[0] if self.client else "")
        status = self._connections.enter(self._client, self)
        if status is None:
            self._start_timer()
        else:
            self._refuse(status, "too many connections are open: try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place of the connection back."""
        self._connections.leave(self._client, self)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        self._last = self.loop.time()
        self._num_bytes += len(data)
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        """Go on with the next request, which may have begun to come in already."""
        super().on_response_complete()
        self._update_timer()

    def time_out(self) -> None:
        """Close the connection, as its client sends nothing or too little."""
        self._refuse(408, "the request comes too slowly")

    def _update_timer(self) -> None:
        """Have the timer run while a request is not all there."""
        state = self.conn.their_state
        begun = state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not (state is h11.SEND_BODY or begun):
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        self._began, self._num_bytes = self.loop.time(), 0
        grace = self._connections.limits.grace_seconds
        self._timer = self.loop.call_later(grace, self._check_progress)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_progress(self) -> None:
        limits = self._connections.limits
        if self.flow.read_paused:
            # It is we who do not read.
            self._start_timer()
            return
        earned = self._num_bytes / limits.bytes_per_second
        left = self._began + limits.grace_seconds + earned - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._check_progress)
        else:
            self._timer = None
            self.time_out()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer for the application, unless it has begun to, and close."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_answer(status, reason))
        if self.cycle is not None:
            # What still runs of the request finds that its client has gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        with contextlib.suppress(h11.LocalProtocolError):
            self.conn.send(h11.ConnectionClosed())
        self.transport.close()


def _answer(status: int, reason: str) -> bytes:
    body = json.dumps({"error": reason}).encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
