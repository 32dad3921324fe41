"""The coordinator's address, and the socket that process 0 listens at there."""

import errno
import ipaddress
import socket
import time

from jaxtrain.errors import UserError

RETRY_SECONDS = 0.2


def split(address: str) -> tuple[str, int]:
    """Split HOST:PORT, or [IPV6]:PORT.

    Raises:
      UserError: it is neither.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(
            f"--coordinator {address}: expected HOST:PORT, such as node1:12345"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def listen(host: str, port: int, deadline: float) -> socket.socket:
    """Listen at the host's address alone, if it is one of this machine.

    Raises:
      UserError: the host's name did not resolve by then, or the port is in use.
    """
    ip, family = _resolve(host, port, deadline)
    # Some machines give their own name a loopback address, which no other can reach.
    named = host in (ip, "localhost")
    if named or not ipaddress.ip_address(ip).is_loopback:
        try:
            return socket.create_server((ip, port), family=family)
        except OSError as error:
            # A forwarded address, as of a service in front of this machine.
            if error.errno != errno.EADDRNOTAVAIL or named:
                raise _cannot_listen(host, port, error) from None
    try:
        if socket.has_dualstack_ipv6():
            family = socket.AF_INET6
            return socket.create_server(("", port), family=family, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise _cannot_listen(host, port, error) from None


def _resolve(host: str, port: int, deadline: float) -> tuple[str, int]:
    """Look the host up, again and again: its name may appear later than the process."""
    while True:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return str(found[4][0]), found[0]
        except socket.gaierror as error:
            if time.monotonic() > deadline:
                raise unknown(host, error) from None
            time.sleep(RETRY_SECONDS)


def unknown(host: str, error: OSError) -> UserError:
    """Return the error of a name that does not resolve."""
    return UserError(
        f"the coordinator's host {host} does not resolve on this machine "
        f"({error.strerror}): correct --coordinator, give the address of process 0's "
        "machine in place of its name, or add the name to DNS or /etc/hosts"
    )


def _cannot_listen(host: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"process 0 cannot listen at the coordinator's address {host}:{port} "
        f"({error.strerror}): --coordinator must name the machine of process 0 and a "
        "free port of it"
    )
