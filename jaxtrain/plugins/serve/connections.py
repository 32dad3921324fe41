"""Limits on the number of connections and on the duration of requests.

uvicorn waits indefinitely for the header and body of a request. `GuardedProtocol`
requires a minimum data rate, and limits the number of connections, in total and per
client.
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
    """Registry of the open connections, by client (see `client_of`)."""

    def __init__(self, limits: ServiceLimits):
        self.limits = limits
        self._of_client: dict[str, set[GuardedProtocol]] = {}

    def protocol(self, **options: Any) -> asyncio.Protocol:
        """Create the protocol of a new connection. Called by uvicorn."""
        return GuardedProtocol(self, **options)

    def enter(self, client: str, connection: "GuardedProtocol") -> int | None:
        """Add a connection; if a limit is reached, close a stalled connection first.

        Returns:
          None if the connection was added, else the HTTP status of the refusal.
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
        """Remove a connection if it is in the registry."""
        own = self._of_client.get(client, set())
        own.discard(connection)
        if not own:
            self._of_client.pop(client, None)

    def _drop_stalled(self, client: str) -> bool:
        """Close a client's longest idle connection if the connection has stalled.

        Returns:
          Whether the connection was closed.
        """
        idle = [(c.idle_seconds, c) for c in self._of_client[client]]
        seconds, connection = max(idle, key=lambda pair: pair[0])
        if seconds < self.limits.stalled_seconds:
            return False
        self.leave(client, connection)
        connection.time_out()
        return True


def client_of(host: str) -> str:
    """Key that identifies a client: its IPv4 address, or its IPv6 /64 network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # For example, a disconnected client has the host "".
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # One client may have all 2^64 addresses of a /64 network.
    return str(ipaddress.ip_network((int(address), 64), strict=False))


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 protocol with connection limits and a minimum data rate of requests."""

    def __init__(self, connections: Connections, **options: Any):
        super().__init__(**options)
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        # For the current request: start time, number of received bytes, and time of the
        # last byte.
        self._began, self._num_bytes, self._last = 0.0, 0, 0.0
        self._client = ""

    @property
    def idle_seconds(self) -> float:
        """Seconds since the client last sent data; 0 while it waits for a response."""
        waits_for_client = self._timer is not None or (
            self.timeout_keep_alive_task is not None
        )
        return self.loop.time() - self._last if waits_for_client else 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or refuse the connection, and wait for its first request."""
        super().connection_made(transport)
        self._last = self.loop.time()
        self._client = client_of(self.client[0] if self.client else "")
        status = self._connections.enter(self._client, self)
        if status is None:
            self._start_timer()
        else:
            self._refuse(status, "too many connections are open: try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the registry."""
        self._connections.leave(self._client, self)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes, and update the timer."""
        self._last = self.loop.time()
        self._num_bytes += len(data)
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        """Start the timer if a part of the next request has already arrived."""
        super().on_response_complete()
        self._update_timer()

    def time_out(self) -> None:
        """Close the connection, because the client sends nothing or too slowly."""
        self._refuse(408, "the request arrived too slowly: try again")

    def _update_timer(self) -> None:
        """Start the timer if the request is incomplete, else stop the timer."""
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
            # The client is not slow: the server has paused reading.
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
        """Close the connection, with an error response if none has started."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_answer(status, reason))
        if self.cycle is not None:
            # Notify the request handler that the client has disconnected.
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
