"""The server: answers, batches, limits, and what bad requests get."""

import asyncio
import http.client
import json
import shlex
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.evaluation.finite import NOT_FINITE
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.serve import server as server_lib
from jaxtrain.plugins.serve.batcher import Batcher
from jaxtrain.plugins.serve.front_page import front_page
from jaxtrain.plugins.serve.program import make_program
from tests.helpers.bad_images import jpeg_of_many_scans
from tests.helpers.images import encode
from tests.helpers.processes import Cli
from tests.helpers.rows import each_row
from tests.helpers.waiting import wait_until
from tests.helpers.words import quoted
from tests.plugins.serve.running import LIMITS, Running, png


@pytest.fixture(scope="module")
def model(digits_run: Path) -> TrainedModel:
    return load_model(digits_run)


@pytest.fixture(scope="module")
def server(model: TrainedModel) -> Iterator[Running]:
    with Running(model, LIMITS) as running:
        yield running


def form(**files: bytes) -> tuple[bytes, str]:
    """Return the body of a form with these files, and its content type."""
    parts = [
        f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{name}"'
        f"\r\n\r\n".encode()
        + data
        + b"\r\n"
        for name, data in files.items()
    ]
    return b"".join(parts) + b"--edge--\r\n", "multipart/form-data; boundary=edge"


def test_an_image_gets_its_probabilities(server: Running, model: TrainedModel):
    status, answer = server.ask(png(0), "/predict?topk=10")
    assert status == 200
    (found,) = answer["predictions"]
    expected = model.predict([png(0)])[0]
    assert [one["index"] for one in found["classes"]] == np.argsort(-expected).tolist()
    for one in found["classes"]:
        assert one["prob"] == pytest.approx(float(expected[one["index"]]), abs=1e-6)
        assert one["label"] == str(one["index"])


def test_several_images_in_a_form(server: Running, model: TrainedModel):
    files = {f"{i}.png": png(i) for i in range(11)}
    body, kind = form(**files)
    status, answer = server.ask(body, "/predict?topk=1", **{"content-type": kind})
    assert status == 200
    expected = model.predict(list(files.values())).argmax(axis=1)
    found = [
        (one["filename"], one["classes"][0]["index"]) for one in answer["predictions"]
    ]
    assert found == list(zip(files, expected.tolist(), strict=True))


def test_health_and_the_page(server: Running, model: TrainedModel):
    status, answer = server.ask(None, "/health")
    assert (status, answer["status"], answer["num_waiting"]) == (200, "ok", 0)
    assert answer["image_shape"] == [8, 8, 1]
    url = f"http://127.0.0.1:{server.port}/"
    page = urllib.request.urlopen(url, timeout=300).read().decode()
    # It loads nothing from elsewhere.
    assert "Drop an image" in page
    assert "http" not in page
    # It says what answers.
    assert "<h1>" + model.description.model.name in page and "step 20." in page
    assert "10 classes" in page and ", ".join(map(str, range(10))) in page


def test_the_page_shows_names_as_text(model: TrainedModel):
    about = replace(model.description, class_names=("<b>&", *"abcdefghi"))
    named = replace(model, description=about)
    parts = named.decoder.answer_parts()
    assert parts is not None
    page = front_page(named, parts, "image")
    assert "&lt;b&gt;&amp;, a, b" in page


def test_a_temperature_divides_the_logits(model: TrainedModel):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1)).astype(np.uint8)
    found = make_program(model, 2.5)(pixels)
    odds = np.exp(model.logits(pixels).astype(np.float64) / 2.5)
    expected = odds / odds.sum(1, keepdims=True)
    np.testing.assert_allclose(found.values["probabilities"][:3], expected, rtol=1e-5)


BAD = {
    "no image": (
        400,
        b"this is text",
        {},
        "image is unreadable: not an image of",
    ),
    "cut off": (400, png(0)[:60], {}, "image is unreadable"),
    "empty": (400, b"", {}, "the request is empty"),
    "too many bytes": (413, b"0" * 100_001, {}, "at most 100000 bytes"),
    "too many pixels": (400, png(0, 101), {}, "pixels are more than"),
    "too many scans": (
        400,
        jpeg_of_many_scans(90, 90, 101),
        {},
        "has 101 scans, more than the limit of",
    ),
    "a form in capitals": (
        400,
        form(**{"bad.png": b"bad"})[0],
        {"content-type": "Multipart/Form-Data; BOUNDARY=edge"},
        "bad.png is unreadable",
    ),
    "a form without a file": (
        400,
        b'--edge\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--edge--\r\n',
        {"content-type": "multipart/form-data; boundary=edge"},
        "the form has no file",
    ),
    # Python's codec makes a surrogate of the name, which no JSON text may hold.
    "one bad image of two": (
        400,
        form(**{"good.png": png(1), "bad.png": b"bad"})[0],
        {"content-type": "multipart/form-data; boundary=edge"},
        "bad.png is unreadable",
    ),
}


@each_row("name", BAD)
def test_a_bad_request_is_told_why(server: Running, name: str):
    expected, body, headers, message = BAD[name]
    status, answer = server.ask(body, **headers)
    assert (status, message in answer["error"]) == (expected, True), answer
    # And the next one is answered.
    assert server.ask(png(2))[0] == 200
    assert server.ask(None, "/health")[1]["num_waiting"] == 0


@pytest.mark.slow
def test_outputs_that_are_not_finite_are_no_answer(model: TrainedModel):
    class Half(Held):
        """Finite outputs of all images but white ones."""

        def run(self, pixels: np.ndarray, output: Any) -> Any:
            found = self._model.run(pixels, output)
            good = pixels.mean((1, 2, 3)) < 255
            return found._replace(finite=np.resize(good, len(found.finite)))

    with Running(cast(Any, Half(model)), LIMITS) as server:
        white = encode(np.full((8, 8), 255, np.uint8))
        body, kind = form(**{"good.png": png(1), "white.png": white})
        status, answer = server.ask(body, **{"content-type": kind})
        assert (status, answer["error"]) == (500, f"white.png: {NOT_FINITE}")
        assert server.ask(png(2))[0] == 200
        assert server.ask(None, "/health")[1]["status"] == "ok"


def test_numbers_of_classes_are_checked(server: Running):
    # The last two are a digit to Python, though no number, and more than it reads.
    for text in ("none", "0", "-1", "%C2%B2", "9" * 5000):
        status, answer = server.ask(png(0), f"/predict?topk={text}")
        told = f"topk = {urllib.parse.unquote(text)!r}: expected a number above 0"
        assert (status, answer["error"]) == (400, told)


def test_a_client_that_leaves_takes_no_place(server: Running):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.putrequest("POST", "/predict")
    connection.putheader("content-length", "5000")
    connection.endheaders()
    connection.send(b"a part of it")
    wait_until(lambda: server.ask(None, "/health")[1]["num_waiting"] == 1)
    connection.close()
    wait_until(lambda: server.ask(None, "/health")[1]["num_waiting"] == 0)


class Held:
    """A model that computes only while it is let, and remembers its batches."""

    def __init__(self, model: TrainedModel):
        self._model = model
        self.let, self.sizes = threading.Event(), list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def run(self, pixels: np.ndarray, output: Any) -> Any:
        self.sizes.append(len(pixels))
        assert self.let.wait(300)
        return self._model.run(pixels, output)


@pytest.mark.slow
def test_a_full_queue_refuses_and_waiting_images_share_batches(model: TrainedModel):
    held = Held(model)
    limits = replace(LIMITS, max_batch=8, max_wait_seconds=0.0, max_waiting=17)
    server: Any = Running(held, limits)  # type: ignore[arg-type]
    try:
        with ThreadPoolExecutor(17) as pool:
            first = pool.submit(server.ask, png(0))
            wait_until(lambda: held.sizes)
            others = [pool.submit(server.ask, png(i)) for i in range(1, 17)]
            waiting = lambda: server.ask(None, "/health")[1]["num_waiting"]  # noqa: E731
            wait_until(lambda: waiting() == 17)
            status, answer = server.ask(png(0))
            assert status == 503
            assert "17 images are waiting" in answer["error"]
            held.let.set()
            assert {f.result()[0] for f in [first, *others]} == {200}
        assert held.sizes[0] == 1
        assert sum(held.sizes) == 17
        assert max(held.sizes) == 8
    finally:
        held.let.set()
        server.stop()


def test_two_hundred_requests_in_flight(server: Running, model: TrainedModel):
    """Of which as many are refused as find no place, and none fails otherwise."""
    images = [png(i) for i in range(20)]
    expected = model.predict(images).argmax(axis=1)

    def ask(i: int) -> int:
        while True:
            status, answer = server.ask(images[i % 20], "/predict?topk=1")
            if status == 200:
                found = answer["predictions"][0]["classes"][0]["index"]
                assert found == expected[i % 20]
                return i
            assert status == 503

    with ThreadPoolExecutor(200) as pool:
        assert sorted(pool.map(ask, range(400))) == list(range(400))


def test_it_is_alive_while_batches_are_computed():
    def compute(images: np.ndarray) -> np.ndarray:
        if images.max() > 1:
            raise RuntimeError("no device")
        return images

    async def ask() -> list[bool]:
        batcher, told = Batcher(compute, LIMITS), list[bool]()
        async with batcher.running():
            told.append(batcher.alive)
            with pytest.raises(RuntimeError, match="no device"):
                await batcher.submit(np.full(1, 2))
            told.append(batcher.alive)
            assert (await batcher.submit(np.ones(1))).tolist() == [1]
            told.append(batcher.alive)
        return told

    assert asyncio.run(ask()) == [True, False, True]


@each_row("devices", [1, 6, 8])
def test_programs_of_all_sizes_are_compiled_first(devices: int):
    class Noted:
        description = SimpleNamespace(whole_shape=(8, 8, 1), stored_dtype=np.uint8)
        sizes: ClassVar[set[int]] = set()
        batch_size = TrainedModel.batch_size

        def share(self, num: int) -> int:
            return -(-num // devices) * devices

        def run(self, pixels: np.ndarray, name: str) -> np.ndarray:
            assert name == "decoded"
            self.sizes.add(self.batch_size(len(pixels)))  # pyright: ignore[reportArgumentType, reportCallIssue]
            return pixels

    model: Any = Noted()
    server_lib._compile(model, make_program(model), 33)
    assert model.sizes == {model.batch_size(num) for num in range(1, 34)}


WRONG = {
    "--max-batch 0: expected a number above 0": "--max-batch 0",
    "cannot listen on this address": "--host 203.0.113.7",
    "none does not exist": "--workdir none",
    "--max-wait-ms -1.0: expected 0 or more": "--max-wait-ms -1",
    "--timeout nan: expected a number above 0": "--timeout nan",
    "checkpoint = '²': ": "--checkpoint ²",
    "temperature.json does not exist: fit the temperature with": "--calibrated",
}


@each_row("message", WRONG)
def test_what_is_wrong_is_told_before_it_starts(
    digits_run: Path, capsys: pytest.CaptureFixture[str], message: str
):
    words = f"serve --workdir {quoted(digits_run)} --port 0 {WRONG[message]}"
    assert main(shlex.split(words)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_until_it_is_stopped(
    digits_run: Path, cli: Cli, tmp_path: Path
):
    run = tmp_path / "run"
    shutil.copytree(digits_run, run)
    model = load_model(run)
    run_id, step = model.origin["run"], model.origin["step"]
    fitted = {"run_id": run_id, "temperature": 2.5, "step": step, "tta": None}
    (run / "temperature.json").write_text(json.dumps(fitted))
    process = cli.start("serve", "--workdir", run, "--calibrated", "--port", 0)
    assert process.stdout is not None
    line = process.stdout.readline()
    port = int(line.rsplit(":", 1)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/predict", body=png(3))
    answer = connection.getresponse()
    assert answer.status == 200
    (found,) = json.loads(answer.read())["predictions"]
    odds = np.exp(model.logits([png(3)])[0].astype(np.float64) / 2.5)
    best = found["classes"][0]
    assert best["prob"] == pytest.approx((odds / odds.sum()).max(), abs=1e-5)
    connection.close()
    process.terminate()
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 143
    assert "pending requests were completed" in stderr


@pytest.mark.exhaustive
def test_memory_stays_flat_over_thousands_of_requests(digits_run: Path, cli: Cli):
    process = cli.start("serve", "--workdir", str(digits_run), "--port", "0", anew=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    images = [png(i) for i in range(20)]

    def ask(i: int) -> None:
        url = f"http://127.0.0.1:{port}/predict"
        request = urllib.request.Request(url, data=images[i % 20])
        with urllib.request.urlopen(request, timeout=300) as response:
            assert response.status == 200
            response.read()

    def resident() -> int:
        text = Path(f"/proc/{process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])

    sizes = []
    with ThreadPoolExecutor(200) as pool:
        for _ in range(3):
            list(pool.map(ask, range(1000)))
            sizes.append(resident())
    process.terminate()
    process.communicate(timeout=300)
    # The first thousands fill the pools of threads and of freed memory.
    assert sizes[2] <= 1.02 * sizes[1], sizes
