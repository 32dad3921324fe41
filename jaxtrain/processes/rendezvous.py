"""Where the processes of a run meet before JAX connects them.

JAX ends a process that waits in vain for the others by SIGABRT, and does not say for
whom it waited. So process 0 first listens at the coordinator's address itself, the
others tell it their numbers, and when all are there it lets them go on to JAX. The
connections are kept, for `peers`.
"""

import contextlib
import errno
import ipaddress
import json
import socket
import time

from jaxtrain.errors import UserError

# What process 0 answers, one line: go on, or why the run cannot begin.
GO, REFUSED = "jaxtrain: go", "jaxtrain: refused: "

# Longest wait for one connection, or for what a connection says.
PATIENCE = 5.0
RETRY_SECONDS = 0.2


def meet(
    address: str, num_processes: int, index: int, timeout: float
) -> tuple[str, dict[int, socket.socket]]:
    """Wait until all processes are at `address`.

    Args:
      address: HOST:PORT, of process 0.
      num_processes: of the run.
      index: this process's number.
      timeout: seconds.

    Returns:
      The address that the coordinator should listen at: that of HOST, or all addresses
      of the machine where HOST is none of them. And the connections: of process 0 to
      each of the others, by their numbers; of another to process 0.

    Raises:
      UserError: not all came in time, or two do not fit together.
    """
    host, port = split(address)
    deadline = time.monotonic() + timeout
    if index == 0:
        listener, bound = _listen(host, port, deadline)
        with listener:
            return bound, _gather(listener, address, num_processes, deadline, timeout)
    return address, {0: _join(address, num_processes, index, deadline, timeout)}


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


def _listen(host: str, port: int, deadline: float) -> tuple[socket.socket, str]:
    """Listen at the host's address alone, if it is one of this machine."""
    ip, family = _resolve(host, port, deadline)
    # Some machines give their own name a loopback address, which no other can reach.
    named = host in (ip, "localhost")
    if named or not ipaddress.ip_address(ip).is_loopback:
        try:
            shown = f"[{ip}]" if family == socket.AF_INET6 else ip
            return socket.create_server((ip, port), family=family), f"{shown}:{port}"
        except OSError as error:
            # A forwarded address, as of a service in front of this machine.
            if error.errno != errno.EADDRNOTAVAIL or named:
                raise _cannot_listen(host, port, error) from None
    try:
        if socket.has_dualstack_ipv6():
            family = socket.AF_INET6
            listener = socket.create_server(
                ("", port), family=family, dualstack_ipv6=True
            )
            return listener, f"[::]:{port}"
        return socket.create_server(("", port)), f"0.0.0.0:{port}"
    except OSError as error:
        raise _cannot_listen(host, port, error) from None


def _resolve(host: str, port: int, deadline: float) -> tuple[str, int]:
    """Look the host up, again and again: its name may appear later than the process."""
    while True:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return str(found[4][0]), found[0]
        except OSError as error:
            if time.monotonic() > deadline:
                raise _cannot_listen(host, port, error) from None
            time.sleep(RETRY_SECONDS)


def _cannot_listen(host: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"process 0 cannot listen at the coordinator's address {host}:{port} "
        f"({error.strerror}): --coordinator must name the machine of process 0 and a "
        "free port of it"
    )


def _gather(
    listener: socket.socket, address: str, num: int, deadline: float, timeout: float
) -> dict[int, socket.socket]:
    """Wait for processes 1 to `num - 1`, and tell them how that went."""
    here: dict[int, socket.socket] = {}
    try:
        while len(here) < num - 1:
            try:
                listener.settimeout(max(0.001, deadline - time.monotonic()))
                connection = listener.accept()[0]
            except TimeoutError:
                missing = sorted({*range(1, num)} - {*here})
                raise _missing(missing, num, address, timeout) from None
            for gone in [i for i, c in here.items() if _gone(c)]:
                here.pop(gone).close()
            index = _greet(connection, num)
            if index is None:
                connection.close()
            elif index in here:
                here[-1] = connection  # It is told, too.
                raise UserError(f"two processes were started as --process-id {index}")
            else:
                here[index] = connection
    except UserError as error:
        for connection in here.values():
            with connection:
                _say(connection, f"{REFUSED}{error}")
        raise
    for connection in here.values():
        _say(connection, GO)
    return here


def _say(connection: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(f"{line}\n".encode())


def _missing(missing: list[int], num: int, address: str, timeout: float) -> UserError:
    shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    return UserError(
        f"process 0 waited {timeout:g} s (--init-timeout) at {address} for process "
        f"{shown}: {num - len(missing)} of {num} processes came. Were all started, "
        "with this --coordinator and --num-processes, and can they reach that address?"
    )


def _greet(connection: socket.socket, num: int) -> int | None:
    """Return the number of the process that connected; None: it is none of ours."""
    try:
        connection.settimeout(PATIENCE)
        words = json.loads(_read_line(connection))
        index, its_num = int(words["process"]), int(words["of"])
        connection.settimeout(None)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    problem = None
    if its_num != num:
        problem = f"was started with --num-processes {its_num}, process 0 with {num}"
    elif not 0 < index < num:
        problem = f"is not one of {num}"
    if problem:
        with connection:
            _say(connection, f"{REFUSED}process {index} {problem}")
        raise UserError(f"process {index} {problem}")
    return index


def _gone(connection: socket.socket) -> bool:
    """Tell whether the process at the other end has ended."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _join(
    address: str, num: int, index: int, deadline: float, timeout: float
) -> socket.socket:
    """Tell process 0 that this one is here, and wait for its answer."""
    host, port = split(address)
    problem = "nothing answers there"
    while (left := deadline - time.monotonic()) > 0:
        try:
            connection = socket.create_connection((host, port), min(left, PATIENCE))
            with contextlib.ExitStack() as stack:
                stack.enter_context(connection)
                words = json.dumps({"process": index, "of": num})
                connection.sendall(f"{words}\n".encode())
                problem = "process 0 is there, but not all the others"
                # Process 0 knows better who is missing: let it give up first.
                connection.settimeout(deadline - time.monotonic() + PATIENCE)
                reply = _read_line(connection)
                if reply == GO:
                    stack.pop_all()
                    return connection
        except TimeoutError:
            continue
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            if reply.startswith(REFUSED):
                raise UserError(reply.removeprefix(REFUSED))
            problem = "something else answers there, or process 0 ended"
        time.sleep(RETRY_SECONDS)
    raise UserError(
        f"process {index} of {num} waited {timeout:g} s (--init-timeout) for process 0 "
        f"at {address}: {problem}. Was process 0 started, with this --coordinator, and "
        "can this machine reach that address?"
    )


def _read_line(connection: socket.socket) -> str:
    """Read up to the end of a line, of the connection, or of any line of ours.

    What comes after the line is left there.
    """
    data = b""
    while not data.endswith(b"\n") and len(data) < 4096:
        more = connection.recv(1)
        if not more:
            break
        data += more
    return data.decode(errors="replace").rstrip("\n")
