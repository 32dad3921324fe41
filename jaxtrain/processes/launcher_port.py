"""Check of the coordinator port that JAX derives from the launcher's environment."""

import errno
import os
import socket
from typing import Any

from jaxtrain.errors import UserError

# Environment variables of Open MPI and SLURM from which JAX derives the address of
# process 0. On TPU hosts, JAX queries the metadata server instead.
_ADDRESS_VARIABLES = ("OMPI_MCA_orte_hnp_uri", "SLURM_STEP_NODELIST")


def check() -> None:
    """Check that the coordinator port is free; else JAX crashes (segmentation fault).

    Called in process 0.

    Raises:
      UserError: The port is in use on this machine.
    """
    known = any(name in os.environ for name in _ADDRESS_VARIABLES)
    if not known or "JAX_COORDINATOR_BIND_ADDRESS" in os.environ:
        return
    from jax.experimental import multihost_utils

    library: Any = multihost_utils
    find = library.distributed.clusters.ClusterEnv.auto_detect_unset_distributed_params
    address = find(None, None, None, None, None, None)[0]
    port = int(address.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    options = {"family": socket.AF_INET6, "dualstack_ipv6": True} if both else {}
    try:
        with socket.create_server(("::" if both else "", port), **options):
            pass
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port}, which JAX derives from the job ID, is in use on this "
                "machine, the host of process 0: set JAX_COORDINATOR_PORT to a free "
                "port, the same for all processes"
            ) from None
