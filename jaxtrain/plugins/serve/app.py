"""Web application: predictions for uploaded images or sounds."""

import asyncio
import contextlib
import dataclasses
import functools
import math
from collections.abc import AsyncIterator
from typing import Any

import jax
import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from jaxtrain.data.files import UnreadableError
from jaxtrain.evaluation.finite import NOT_FINITE
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import SIZE_BYTES, sized_pixels, to_sized_pixels
from jaxtrain.plugins.serve.batcher import Batcher
from jaxtrain.plugins.serve.decoders import DecoderPool
from jaxtrain.plugins.serve.forms import FormError, files_of
from jaxtrain.plugins.serve.front_page import front_page
from jaxtrain.plugins.serve.limits import RefusedError, ServiceLimits
from jaxtrain.plugins.serve.program import Program, make_program

# Value of the Retry-After header of responses with status 503, in seconds.
RETRY_SECONDS = "1"


def make_app(
    model: TrainedModel, limits: ServiceLimits, program: Program | None = None
) -> Starlette:
    """Create the application, with a front page at `/`.

    `POST /predict` accepts the contents of an image or sound file, or a form with
    several files; `?topk=K` returns K classes instead of five. Multi-label models also
    return the predicted labels; segmentation models return a mask and the most frequent
    classes. `GET /health` is the health check.

    Args:
      model: Model with a decoder that supports `answer_parts`.
      limits: Limits of requests and batches.
      program: Compiled prediction function. Defaults to `make_program(model)`.
    """
    compute = program or make_program(model)
    about, decoder = model.description, model.decoder
    parts = decoder.answer_parts()
    assert parts is not None
    noun = about.input.noun

    def run(pixels: np.ndarray) -> list[Any]:
        """Predict a batch; return outputs per image, None if they are not finite."""
        found, finite = jax.device_get(compute(pixels))
        return [
            jax.tree.map(lambda x, i=i: x[i], found) if finite[i] else None
            for i in range(len(pixels))
        ]

    def to_json(row: Any, num_shown: int, size: tuple[int, int]) -> dict[str, Any]:
        batch = jax.tree.map(lambda x: x[None], row)
        return decoder.prediction(batch, 0, size).json(num_shown)

    index = front_page(model, parts, noun)
    batcher, shape = Batcher(run, limits), about.whole_shape
    dtype: type[np.generic] = about.stored_dtype
    to_shape = functools.partial(
        to_sized_pixels,
        shape=shape,
        fit=about.fit,
        max_pixels=limits.max_pixels,
        input=about.input,
    )
    flat = (math.prod(shape) * np.dtype(dtype).itemsize + SIZE_BYTES,)
    decoders = DecoderPool(to_shape, flat, limits.decode_seconds, limits.num_decoders)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with decoders.running():
            async with batcher.running():
                yield

    async def predict(request: Request) -> Response:
        try:
            async with asyncio.timeout(limits.timeout_seconds):
                return JSONResponse(await answer(request))
        except TimeoutError:
            seconds = f"{limits.timeout_seconds:g} seconds"
            refused = RefusedError(503, f"no response within {seconds}")
        except RefusedError as error:
            refused = error
        except ClientDisconnect:
            return Response(status_code=400)
        headers = {"retry-after": RETRY_SECONDS} if refused.status == 503 else {}
        return JSONResponse({"error": str(refused)}, refused.status, headers)

    async def answer(request: Request) -> dict[str, Any]:
        num_shown = _topk(request, parts.num_ranked) if parts.num_ranked else 0
        # Reserve a slot in the queue before reading the body, to limit the memory of
        # pending requests.
        with batcher.reserve(1):
            body = await _body(request, limits.max_bytes)
            images = _files(request, body, noun)
            with batcher.reserve(len(images) - 1):
                decoded = [await decode(name, data) for name, data in images]
                pixels, sizes = zip(*decoded, strict=True)
                rows = await asyncio.gather(*map(batcher.submit, pixels))
        for (name, _), row in zip(images, rows, strict=True):
            if row is None:
                raise RefusedError(500, f"{name}: {NOT_FINITE}")
        shown = [
            {"filename": name, **to_json(row, num_shown, size)}
            for (name, _), row, size in zip(images, rows, sizes, strict=True)
        ]
        return {"predictions": shown}

    async def decode(name: str, data: bytes) -> tuple[np.ndarray, tuple[int, int]]:
        try:
            return sized_pixels(await decoders.decode(data), shape, dtype)
        except UnreadableError as error:
            raise RefusedError(400, f"{name} is unreadable: {error}") from None

    async def health(_: Request) -> Response:
        values = {
            "status": "ok" if batcher.alive else "failed",
            "model": about.model.name,
            **parts.health,
            "image_shape": (
                about.whole_shape if about.input.are_images else about.image_shape
            ),
            **dataclasses.asdict(about.input),
            "num_waiting": batcher.num_waiting,
            "origin": model.origin,
        }
        return JSONResponse(values, status_code=200 if batcher.alive else 500)

    async def page(_: Request) -> Response:
        return HTMLResponse(index)

    routes = [
        Route("/predict", predict, methods=["POST"]),
        Route("/health", health, methods=["GET"]),
        Route("/", page, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def _body(request: Request, max_bytes: int) -> bytes:
    """Read the body of a request; the Content-Length header may be wrong."""
    too_large = RefusedError(
        413, f"the request is too large: send at most {max_bytes} bytes"
    )
    length = request.headers.get("content-length", "0")
    # Check the number of digits first: `int` raises ValueError above 4300 digits.
    if not length.isdecimal() or len(length) > 20 or int(length) > max_bytes:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _files(request: Request, body: bytes, noun: str) -> list[tuple[str, bytes]]:
    """Names and contents of the files in a request, in order."""
    kind, _, _ = request.headers.get("content-type", "").partition(";")
    # Media types are case-insensitive (RFC 9110, 8.3.1).
    if kind.strip().lower() != "multipart/form-data":
        if not body:
            raise RefusedError(
                400, f"the request is empty: send the bytes of one {noun}"
            )
        return [(noun, body)]

    try:
        found = files_of(request.headers["content-type"], body)
    except FormError as error:
        raise RefusedError(400, f"the form cannot be read: {error}") from None
    if not found:
        raise RefusedError(400, f"the form has no file: send {noun}s")
    return found


def _topk(request: Request, num_classes: int) -> int:
    text = request.query_params.get("topk", "5")
    try:
        num = int(text)
    except ValueError:
        num = 0
    if num < 1:
        raise RefusedError(400, f"topk = {text!r}: expected a number above 0")
    return min(num, num_classes)
