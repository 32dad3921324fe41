"""A server in a thread of this process."""

import io
import json
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from PIL import Image

from jaxtrain.data.fit import Fit
from jaxtrain.data.input_kind import PICTURES
from jaxtrain.evaluation.finite import Checked
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.serve.limits import ServiceLimits
from jaxtrain.plugins.serve.server import listen, make_server
from jaxtrain.tasks.classification import Classification
from tests.helpers.facts import facts_of
from tests.helpers.waiting import wait_until

# Small, so that the tests come to them; nothing is ever late.
LIMITS = ServiceLimits(
    max_batch=8,
    max_wait_seconds=0.005,
    max_waiting=64,
    max_per_client=300,
    max_open=400,
    grace_seconds=300,
    num_decoders=1,
    max_bytes=100_000,
    max_pixels=10_000,
    timeout_seconds=300,
)


class Running:
    """A server in a thread of this process."""

    def __init__(self, model: TrainedModel, limits: ServiceLimits):
        self._socket = listen("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self._server = make_server(model, limits)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}
        )
        self._thread.start()
        wait_until(lambda: self._server.started)

    def ask(
        self, body: bytes | None, path: str = "/predict", **headers: str
    ) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.port}{path}"
        kinds = {"content-type": "application/octet-stream", **headers}
        request = urllib.request.Request(url, data=body, headers=kinds)
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class OneClass:
    """In the place of a model: everything is of one class."""

    class_names = ("all",)
    decoder = Classification.decoder(facts_of(1, class_names=("all",)))
    origin: dict[str, Any] = {}  # noqa: RUF012
    description = SimpleNamespace(
        image_shape=(8, 8, 1),
        whole_shape=(8, 8, 1),
        stored_dtype=np.uint8,
        input=PICTURES,
        fit=Fit(),
        model=SimpleNamespace(name="one class"),
    )

    def run(self, pixels: np.ndarray, output: str) -> Checked:
        sure = np.ones((len(pixels), 1), np.float32)
        values = {"index": np.zeros_like(sure, int), "probabilities": sure}
        return Checked(values, np.ones(len(pixels), bool))


def png(value: int, size: int = 8) -> bytes:
    draws = np.random.default_rng(value).integers(0, 256, (size, size))
    buffer = io.BytesIO()
    Image.fromarray(draws.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()
