"""Where the processes of a run meet before JAX connects them.

JAX ends a process that waits in vain for the others by SIGABRT, and does not say for
whom it waited. So process 0 listens at the coordinator's address, the others call it
(see `greeting`), and when all are there it lets them go on. Each makes two connections,
one for `peers` and one for JAX, and they are kept: nobody listens there afterwards.
"""

import contextlib
import socket
import time
from collections.abc import Iterable

from jaxtrain.console import tell
from jaxtrain.errors import UserError
from jaxtrain.processes import greeting
from jaxtrain.processes.address import RETRY_SECONDS, listen, split, unknown
from jaxtrain.processes.greeting import PATIENCE, PURPOSES, GreetedSocket, Refusal
from jaxtrain.processes.messages import MessageError
from jaxtrain.processes.reception import Reception

# What is sent by one connection may come later than the end of another that was ended
# after it: of a process that calls again, its first calls may still seem to be there.
ENDED_SECONDS = 2.0

# The connections of a process for each purpose: of process 0 to each of the others, by
# their numbers; of another to process 0.
Connections = dict[str, dict[int, socket.socket]]


def meet(
    address: str,
    num_processes: int,
    index: int,
    timeout: float,
    token: bytes | None = None,
) -> Connections:
    """Wait until all processes are at `address`.

    Args:
      address: HOST:PORT of process 0.
      num_processes: Number of processes of the run.
      index: Number of this process.
      timeout: Limit in seconds.
      token: Token that all processes prove to hold; None authenticates nobody.

    Returns:
      The connections between process 0 and the others.

    Raises:
      UserError: not all came in time, or two do not fit together.
    """
    host, port = split(address)
    deadline = time.monotonic() + timeout
    if index == 0:
        with listen(host, port, deadline) as listener:
            return _gather(listener, address, num_processes, token, deadline, timeout)
    return _join(address, num_processes, index, token, deadline, timeout)


def _gather(
    listener: socket.socket,
    address: str,
    num: int,
    token: bytes | None,
    deadline: float,
    timeout: float,
) -> Connections:
    """Wait for processes 1 to `num - 1`, and tell them how that went."""
    here: dict[tuple[str, int], GreetedSocket] = {}
    refused: dict[int, str] = {}
    expected = [(purpose, index) for purpose in PURPOSES for index in range(1, num)]
    with Reception(listener, token, len(expected)) as reception:
        try:
            while not _complete(here, len(expected)):
                found = reception.next(deadline)
                if found is None:
                    _drop_gone(here, list(here))
                    missing = sorted({i for p, i in expected if (p, i) not in here})
                    raise _missing(missing, num, address, timeout, refused)
                if isinstance(found, Refusal):
                    _turn_away(found, num, token, refused)
                else:
                    _admit(found, num, here)
        except UserError as error:
            for call in here.values():
                call.refuse(str(error))
            raise
    for call in here.values():
        call.go()
    return {
        purpose: {i: here[purpose, i].connection for i in range(1, num)}
        for purpose in PURPOSES
    }


def _admit(
    call: GreetedSocket, num: int, here: dict[tuple[str, int], GreetedSocket]
) -> None:
    """Add a call to those that are here, in place of one that has ended.

    Raises:
      UserError: it does not fit to this process or to the other calls.
    """
    index, problem = call.process, ""
    key = (call.purpose, index)
    _drop_gone(here, [key], ENDED_SECONDS)
    if call.of != num:
        problem = (
            f"process {index} was started with --num-processes {call.of}, process 0 "
            f"with {num}"
        )
    elif not 0 < index < num:
        problem = f"process {index} is not one of {num}"
    elif key in here:
        problem = f"two processes were started as --process-id {index}"
    if problem:
        call.refuse(problem)
        raise UserError(problem)
    here[key] = call


def _complete(here: dict[tuple[str, int], GreetedSocket], expected: int) -> bool:
    """Whether all calls are here; those that have ended meanwhile are dropped."""
    if len(here) == expected:
        _drop_gone(here, list(here))
    return len(here) == expected


def _drop_gone(
    here: dict[tuple[str, int], GreetedSocket],
    keys: Iterable[tuple[str, int]],
    seconds: float = 0.0,
) -> None:
    for key in keys:
        if key in here and here[key].gone(seconds):
            here.pop(key).connection.close()


def _turn_away(
    refusal: Refusal, num: int, token: bytes | None, refused: dict[int, str]
) -> None:
    """Warn, once for each number, of a process refused for lack of the token.

    Raises:
      UserError: the caller has a token and process 0 has not.
    """
    if token is None:
        raise UserError(refusal.reason)
    # It may be anybody: what it says ends nothing here.
    if 0 < refusal.process < num and refusal.process not in refused:
        refused[refusal.process] = refusal.reason
        tell(f"warning: refused a caller at the coordinator's port: {refusal.reason}")


def _missing(
    missing: list[int], num: int, address: str, timeout: float, refused: dict[int, str]
) -> UserError:
    shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    reasons = [refused[index] for index in missing if index in refused]
    return UserError(
        f"process 0 waited {timeout:g} s (--init-timeout) at {address} for process "
        f"{shown}: {num - len(missing)} of {num} processes came. "
        + (
            f"Refused: {reasons[0]}"
            if reasons
            else "Were all started, with this --coordinator and --num-processes, and "
            "can they reach that address?"
        )
    )


def _join(
    address: str,
    num: int,
    index: int,
    token: bytes | None,
    deadline: float,
    timeout: float,
) -> Connections:
    """Call process 0 again and again, until it lets this one go on."""
    host, port = split(address)
    problem, unresolved = "nothing answers there", None
    while True:
        unresolved = None
        try:
            with contextlib.ExitStack() as stack:
                calls = _call(stack, (host, port), num, index, token, deadline)
                problem = "process 0 is there, but not all the others"
                # Process 0 knows better who is missing: let it give up first.
                _wait_for_go(calls, deadline + PATIENCE)
                stack.pop_all()
                return {call.purpose: {0: call.connection} for call in calls}
        except MessageError:
            problem = "something else answers there, or process 0 ended"
        except TimeoutError:
            pass
        except socket.gaierror as error:
            unresolved = error
        except OSError as error:
            problem = error.strerror or str(error)
        time.sleep(RETRY_SECONDS)
        if time.monotonic() >= deadline:
            break
    if unresolved is not None:
        raise unknown(host, unresolved)
    raise UserError(
        f"process {index} of {num} waited {timeout:g} s (--init-timeout) for process 0 "
        f"at {address}: {problem}. Was process 0 started, with this --coordinator, and "
        "can this machine reach that address?"
    )


def _call(
    stack: contextlib.ExitStack,
    at: tuple[str, int],
    num: int,
    index: int,
    token: bytes | None,
    deadline: float,
) -> list[GreetedSocket]:
    """Greet process 0 once for each purpose, by connections that the stack closes."""
    calls: list[GreetedSocket] = []
    try:
        for purpose in PURPOSES:
            until = min(deadline, time.monotonic() + PATIENCE)
            left = max(0.001, until - time.monotonic())
            connection = stack.enter_context(socket.create_connection(at, left))
            calls.append(greeting.call(connection, index, num, purpose, token, until))
    except (OSError, MessageError):
        _look_for_refusal(calls)
        raise
    return calls


def _wait_for_go(calls: list[GreetedSocket], deadline: float) -> None:
    """Wait until process 0 lets this one go on, on all of its connections."""
    for i, call in enumerate(calls):
        try:
            call.wait_for_go(deadline)
        except (OSError, MessageError):
            _look_for_refusal(calls[i + 1 :])
            raise


def _look_for_refusal(calls: list[GreetedSocket]) -> None:
    """Raise UserError if process 0 refuses on one of these connections.

    It tells a caller why on the connections that it has admitted, and ends the others:
    the reason may come after those have ended.
    """
    for call in calls:
        with contextlib.suppress(OSError, MessageError):
            call.wait_for_go(time.monotonic() + PATIENCE)
