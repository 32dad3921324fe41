"""What jaxtrain takes from libraries that is no public interface of theirs.

Each has one place in jaxtrain and a test here. A new version that fails one says which
library changed, and what to do about it.
"""

import ast
import importlib
import importlib.metadata
import inspect
from typing import Any, NamedTuple

import grain
import pytest

from jaxtrain.data import ahead
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.trees import nodes


class Interface(NamedTuple):
    library: str
    module: str
    name: str
    # Of a function, as we call it; None: it is no Python function.
    parameters: str | None
    # The module of jaxtrain that uses it, and what to do when it is gone.
    place: str
    remedy: str


CONNECTIONS = "jaxtrain/plugins/serve/connections.py"
TFDS, TENSORBOARD = "jaxtrain/data/tfds.py", "jaxtrain/plugins/trackers/tensorboard.py"
USED = [
    Interface(
        "jax",
        "jax._src.source_info_util",
        "SourceInfo.name_stack",
        None,
        "jaxtrain/scopes.py",
        "find where an equation of a jaxpr has its named scopes now",
    ),
    Interface(
        "jax",
        "jax.experimental.multihost_utils",
        "distributed.global_state.client",
        None,
        "jaxtrain/processes/messages.py",
        "find the client of the coordination service, as Orbax does",
    ),
    Interface(
        "jax",
        "jax.experimental.multihost_utils",
        "distributed.clusters.ClusterEnv.auto_detect_unset_distributed_params",
        "coordinator_address num_processes process_id local_device_ids "
        "cluster_detection_method initialization_timeout",
        "jaxtrain/processes/launcher_port.py",
        "find where JAX finds the address of process 0 under SLURM and Open MPI",
    ),
    *(
        Interface(
            "jax",
            "jaxlib._jax",
            f"DistributedRuntimeClient.{name}",
            None,
            "jaxtrain/processes/messages.py",
            "find the key-value store of the coordination service",
        )
        for name in ("key_value_set", "blocking_key_value_get", "key_value_delete")
    ),
    Interface(
        "tensorflow-datasets",
        "tensorflow_datasets.core.utils",
        "error_utils.reraise_with_context",
        "error_cls",
        TFDS,
        "call what finds the folder of a set without it, if that works",
    ),
    Interface(
        "tensorflow-datasets",
        "tensorflow_datasets.core.read_only_builder",
        "_find_builder_dir",
        "name builder_kwargs",
        TFDS,
        "find the folder of the set by its name, as TFDS does, before TFDS reads it",
    ),
    Interface(
        "tensorflow-datasets",
        "tensorflow_datasets.proto",
        "tf_example_pb2.Example.FromString",
        None,
        TFDS,
        "parse records by another copy of TensorFlow's example.proto",
    ),
    Interface(
        "tensorboardX",
        "tensorboardX.record_writer",
        "masked_crc32c",
        "data",
        TENSORBOARD,
        "compute the checksum of a TFRecord there",
    ),
    Interface(
        "tensorboardX",
        "tensorboardX.summary",
        "scalar",
        "name scalar display_name summary_description",
        TENSORBOARD,
        "make the Summary there, of tensorboardX.proto.summary_pb2",
    ),
    Interface(
        "tensorboardX",
        "tensorboardX.proto",
        "event_pb2.Event.SerializeToString",
        None,
        TENSORBOARD,
        "take the events of another library that knows TensorBoard's protocol",
    ),
    *(
        Interface(
            "uvicorn",
            "uvicorn.protocols.http.h11_impl",
            f"H11Protocol.{name}",
            parameters,
            CONNECTIONS,
            "find where uvicorn takes the bytes of a request and ends an answer now",
        )
        for name, parameters in (
            ("data_received", "self data"),
            ("on_response_complete", "self"),
            ("connection_made", "self transport"),
        )
    ),
]


@each_row("used", USED)
def test_interface_is_as_we_use_it(used: Interface):
    version = importlib.metadata.version(used.library)
    told = (
        f"{used.library} {version} has another {used.module}.{used.name}, which is no "
        f"public interface and is used in {used.place}: {used.remedy}; then change the "
        "table of this test"
    )
    try:
        found: Any = importlib.import_module(used.module)
        for part in used.name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{told} ({error})")
    if used.parameters is not None:
        assert list(inspect.signature(found).parameters) == used.parameters.split(), (
            told
        )
    text = (ROOT / used.place).read_text()
    assert any(part in text for part in used.name.split("."))


@pytest.mark.slow
def test_grain_asks_whether_arrays_are_closed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
):
    asked = []
    monkeypatch.setattr(ahead, "_close_at_once", lambda *args: asked.append(args))
    dataset = grain.MapDataset.range(4).to_iter_dataset()
    assert list(ahead.with_workers(dataset, 1)) == [0, 1, 2, 3]
    assert asked, (
        f"grain {grain.__version__} does not call SharedMemoryArray.enable_async_del "
        "when it starts workers: if it still closes arrays in a thread, see "
        "docs/decisions.md and find how to turn that off; if not, remove "
        "_close_at_once from jaxtrain/data/ahead.py"
    )


def test_nothing_else_is_private():
    """No import has an underscore, and three modules import Orbax."""
    private, orbax = set(), set()
    for path, inside in nodes().items():
        for node in inside:
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                if name.startswith("orbax"):
                    orbax.add(str(path))
                module = name.partition(".")[0]
                parts = [] if module == "__future__" else name.split(".")
                if any(part.startswith("_") for part in parts):
                    private.add(name.rpartition(".")[0])
    checkpoints = {"checkpoints/orbax.py", "checkpoints/handlers.py"}
    assert orbax == {*checkpoints, "processes/cluster.py"}
    assert not private
