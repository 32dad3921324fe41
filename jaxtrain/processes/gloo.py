"""Gloo, which sums over processes on CPUs: where it listens.

By default it looks the machine's own name up, which need not resolve (JAX then finds no
device at all), and on Debian is 127.0.1.1, which no other machine reaches.
"""

import functools
import ipaddress
import socket
from collections.abc import Iterable

import jax
from jax._src import distributed, xla_bridge
from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]
from jax.extend import backend

from jaxtrain.errors import UserError


def own_host(connections: Iterable[socket.socket]) -> str:
    """Return the IP address at which other processes reach this one.

    Args:
      connections: To other processes. Of several addresses, one that is not loopback
        is taken: a process on the same machine reaches it, too.
    """
    hosts = []
    for connection in connections:
        host = ipaddress.ip_address(connection.getsockname()[0].partition("%")[0])
        mapped = getattr(host, "ipv4_mapped", None)
        hosts.append(mapped or host)
    return str(min(hosts, key=lambda host: host.is_loopback))


def listen_at(host: str) -> None:
    """Let Gloo listen at this address alone.

    Must come after `jax.distributed.initialize`, and before JAX's backend starts. It
    does nothing where `JAX_CPU_COLLECTIVES_IMPLEMENTATION` names another library.

    Raises:
      UserError: Gloo cannot listen there.
    """
    if getattr(jax.config, "jax_cpu_collectives_implementation") != "gloo":  # noqa: B009
        return
    try:
        collectives = _jax.make_gloo_tcp_collectives(
            distributed_client=distributed.global_state.client, hostname=host
        )
    except RuntimeError as error:
        raise UserError(
            f"Gloo, which connects the processes on CPUs, cannot listen at {host}, the "
            f"address of this machine that the coordinator sees ({error}): give "
            "--coordinator by a name or address that leads there over another network"
        ) from None
    factory = functools.partial(xla_bridge.make_cpu_client, collectives)
    backend.register_backend_factory("cpu", factory, priority=0, fail_quietly=False)
