"""A process that imports what a run needs, once, and forks itself for each run.

Of the 4.0 seconds of CPU time of a small run in a process of its own, 2.6 are imports.
A child begins as `python main.py` would: it has its own environment, folder and output,
its script is `__main__`, and it ends as Python ends.

JAX may be forked until it starts a backend, which nothing does here; so that the
children are the processes of the tests themselves, see `tests/helpers/forked.py`.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

PRELOADED = (
    "jaxtrain.__main__",
    "jaxtrain.trainer.train",
    "jaxtrain.commands.checkpoint",
    "jaxtrain.commands.train",
    "sklearn.datasets",
)
# Of the variables that JAX reads when it is imported, those that tests set.
JAX_VARIABLES = {
    "JAX_PLATFORMS": str,
    "JAX_ENABLE_X64": lambda text: text == "1",
    "JAX_NUM_CPU_DEVICES": int,
    "JAX_COMPILATION_CACHE_DIR": str,
}


def serve(link: socket.socket) -> dict[str, Any]:
    """Fork a child for each request; return the request, in the child."""
    while True:
        message, files, _, _ = socket.recv_fds(link, 1 << 20, 2)
        if not message:
            os._exit(0)
        read, write = os.pipe()
        parent = os.fork()
        if not parent:
            # A child whose parent has ended becomes one of the process of the tests.
            child = os.fork()
            if child:
                os.write(write, str(child).encode())
                os._exit(0)
            os.close(read)
            link.close()
            request = {**json.loads(message), "files": files}
            stand_alone(request)
            os.close(write)
            return request
        os.waitpid(parent, 0)
        for descriptor in (write, *files):
            os.close(descriptor)
        with open(read) as pipe:
            link.send(pipe.read().encode())  # Once the child stands alone.


def stand_alone(request: dict[str, Any]) -> None:
    """Get what signals are sent to: whoever waits for the number may send some."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["new_session"]:
        os.setsid()
    if request["group"] is not None:
        os.setpgid(0, request["group"])


def become(request: dict[str, Any]) -> None:
    """Take on the environment, the folder, the output and the script of a process."""
    for number, descriptor in enumerate(request["files"], 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    missing = JAX_VARIABLES.keys() & os.environ.keys() - request["environment"].keys()
    assert not missing, f"JAX has read {missing} here already"
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["words"]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    set_jax_up()


def set_jax_up() -> None:
    """Let JAX take what it would have read from the environment."""
    import jax

    for name, value in os.environ.items():
        if name.startswith("JAX_") and hasattr(jax.config, name.lower()):
            jax.config.update(name.lower(), JAX_VARIABLES[name](value))


def cache_of_every_process() -> None:
    """Let all processes of a run write the programs that they compile.

    JAX leaves that to process 0, whose programs are not those of the others on CPUs:
    they would compile theirs in every run.
    """
    from jax._src import compiler

    write: Any = getattr(compiler, "_cache_write")  # noqa: B009
    first = SimpleNamespace(global_state=SimpleNamespace(process_id=0))
    seen = {**vars(compiler), "distributed": first}
    setattr(compiler, write.__name__, FunctionType(write.__code__, seen))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # It goes to the tests.
    for name in PRELOADED:
        importlib.import_module(name)
    cache_of_every_process()
    gc.freeze()
    become(serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
    script = ModuleType("__main__")
    script.__file__ = sys.argv[0]
    sys.modules["__main__"] = script
    exec(compile(Path(sys.argv[0]).read_text(), sys.argv[0], "exec"), script.__dict__)
