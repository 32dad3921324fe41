"""Meeting of the processes of a run before JAX connects them.

JAX ends a process that waits in vain for the others by SIGABRT, and does not say for
whom it waited. So process 0 listens at the coordinator's address, the others call it
(see `greeting`), and when all are there it lets them go on. Each makes two connections,
one for `peers` and one for JAX, and they are kept: nobody listens there afterwards.
"""

import contextlib
import errno
import ipaddress
import socket
import time

from jaxtrain.errors import UserError
from jaxtrain.processes import greeting
from jaxtrain.processes.greeting import PATIENCE, PURPOSES, GreetedSocket
from jaxtrain.processes.messages import MessageError
from jaxtrain.processes.reception import Reception

RETRY_SECONDS = 0.2


def split(address: str) -> tuple[str, int]:
    """Split HOST:PORT, or [IPV6]:PORT, or raise UserError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(
            f"--coordinator {address}: expected HOST:PORT, such as node1:12345"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def meet(
    address: str,
    num_processes: int,
    index: int,
    timeout: float,
    token: bytes | None = None,
) -> dict[str, dict[int, socket.socket]]:
    """Wait until all processes are at `address`.

    Args:
      address: HOST:PORT of process 0.
      timeout: Limit in seconds.
      token: Token that all processes prove to hold; None authenticates nobody.

    Returns:
      For each purpose, the connections of process 0 to the others, by their numbers; or
      the one of another process, to process 0.

    Raises:
      UserError: not all came in time, or two do not fit together.
    """
    host, port = split(address)
    deadline = time.monotonic() + timeout
    waited = f"waited {timeout:g} s (--init-timeout)"
    if index == 0:
        with (
            listen(host, port, deadline) as listener,
            Reception(listener, num_processes, token) as reception,
        ):
            waited = f"process 0 {waited} at {address} for process "
            return reception.gather(deadline, waited)
    waited = f"process {index} of {num_processes} {waited} for process 0 at {address}: "
    calls = _call((host, port), num_processes, index, token, deadline, waited)
    return {call.purpose: {0: call.connection} for call in calls}


def listen(host: str, port: int, deadline: float) -> socket.socket:
    """Listen at the host's address alone, if it is one of this machine.

    Raises:
      UserError: the host's name did not resolve by then, or the port is in use.
    """
    ip, family = _resolve(host, port, deadline)
    named = host in (ip, "localhost")
    try:
        # Some machines give their own name a loopback address, which no other reaches.
        if named or not ipaddress.ip_address(ip).is_loopback:
            try:
                return socket.create_server((ip, port), family=family)
            except OSError as error:
                # A forwarded address, as of a service in front of this machine.
                if error.errno != errno.EADDRNOTAVAIL or named:
                    raise
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise UserError(
            f"process 0 cannot listen at the coordinator's address {host}:{port} "
            f"({error.strerror}): --coordinator must name the machine of process 0 and "
            "a free port of it"
        ) from None


def _resolve(host: str, port: int, deadline: float) -> tuple[str, int]:
    """Look the host up, again and again: its name may appear later than the process."""
    while True:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return str(found[4][0]), found[0]
        except socket.gaierror as error:
            if time.monotonic() > deadline:
                raise _unknown(host, error) from None
            time.sleep(RETRY_SECONDS)


def _unknown(host: str, error: OSError) -> UserError:
    return UserError(
        f"the coordinator's host {host} does not resolve on this machine "
        f"({error.strerror}): correct --coordinator, give the address of process 0's "
        "machine in place of its name, or add the name to DNS or /etc/hosts"
    )


def _call(
    at: tuple[str, int],
    num: int,
    index: int,
    token: bytes | None,
    deadline: float,
    waited: str,
) -> list[GreetedSocket]:
    """Call process 0 again and again, until it lets this one go on."""
    problem = "nothing answers there"
    while True:
        unresolved = None
        # Those that process 0 may still answer.
        calls: list[GreetedSocket] = []
        with contextlib.ExitStack() as stack:
            try:
                for purpose in PURPOSES:
                    until = min(deadline, time.monotonic() + PATIENCE)
                    left = max(0.001, until - time.monotonic())
                    opened = stack.enter_context(socket.create_connection(at, left))
                    call = greeting.call(opened, index, num, purpose, token, until)
                    calls.append(call)
                met = [*calls]
                problem = "process 0 is there, but not all the others"
                while calls:
                    # Process 0 knows better who is missing: let it give up first.
                    calls.pop(0).wait_for_go(deadline + PATIENCE)
                stack.pop_all()
                return met
            except (OSError, MessageError) as error:
                _look_for_refusal(calls)
                if isinstance(error, MessageError):
                    problem = "something else answers there, or process 0 ended"
                elif isinstance(error, socket.gaierror):
                    unresolved = error
                elif not isinstance(error, TimeoutError):
                    problem = error.strerror or str(error)
        time.sleep(RETRY_SECONDS)
        if time.monotonic() >= deadline:
            break
    if unresolved is not None:
        raise _unknown(at[0], unresolved)
    raise UserError(
        f"{waited}{problem}. Was process 0 started, with this --coordinator, and can "
        "this machine reach that address?"
    )


def _look_for_refusal(calls: list[GreetedSocket]) -> None:
    """Raise UserError if process 0 refuses on one of these connections.

    It tells a caller why on the connections that it has admitted, and ends the others:
    the reason may come after those have ended.
    """
    for call in calls:
        with contextlib.suppress(OSError, MessageError):
            call.wait_for_go(time.monotonic() + PATIENCE)
