"""Dynamic batching of requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxtrain.plugins.serve.limits import RefusedError, ServiceLimits

# Function that computes one pytree for each image of a batch, (n, H, W, C).
RunBatch = Callable[[np.ndarray], Sequence[Any] | np.ndarray]

# (image, future of its outputs).
Waiting = tuple[np.ndarray, asyncio.Future[Any]]


class Batcher:
    """Dynamic batching of concurrent requests.

    A batch is computed when it is full, or `max_wait_seconds` after its first image.
    During the computation, images queue for the next batch, so a busy server has full
    batches.

    Args:
      run_batch: Function that computes a batch; called in a thread.
      limits: Limits of batches and of the queue.
    """

    def __init__(self, run_batch: RunBatch, limits: ServiceLimits):
        self._run_batch, self._limits = run_batch, limits
        self._queue = asyncio.Queue[Waiting]()
        self._device = ThreadPoolExecutor(1, "device")
        self._task: asyncio.Task[None] | None = None
        self._failed = False
        self.num_waiting = 0

    @contextlib.contextmanager
    def reserve(self, num: int) -> Iterator[None]:
        """Context manager: reserve slots in the queue for `num` images.

        Raises:
          RefusedError: The queue is full.
        """
        if self.num_waiting + num > self._limits.max_waiting:
            raise RefusedError(
                503,
                f"{self.num_waiting} images are waiting, and {num} more would exceed "
                f"the limit of {self._limits.max_waiting}: try again later",
            )
        self.num_waiting += num
        try:
            yield
        finally:
            self.num_waiting -= num

    async def submit(self, pixels: np.ndarray) -> Any:
        """Queue an image, uint8 (H, W, C), and await its outputs.

        Must be called inside `reserve`.
        """
        result = asyncio.get_running_loop().create_future()
        await self._queue.put((pixels, result))
        return await result

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context manager: run the task that computes queued images in batches."""
        self._task = asyncio.create_task(self._work())
        try:
            yield
        finally:
            self._task.cancel()
            self._device.shutdown()

    @property
    def alive(self) -> bool:
        """Whether the task is running, and the last batch did not fail."""
        running = self._task is not None and not self._task.done()
        return running and not self._failed

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            if not batch:
                continue
            images = np.stack([image for image, _ in batch])
            results = [result for _, result in batch]
            try:
                rows = await loop.run_in_executor(self._device, self._run_batch, images)
            except Exception as error:
                self._failed = True
                for result in results:
                    if not result.done():
                        result.set_exception(error)
                continue
            self._failed = False
            for row, result in zip(rows, results, strict=True):
                # A future is cancelled when its client disconnects.
                if not result.done():
                    result.set_result(row)

    async def _collect(self) -> list[Waiting]:
        """Wait for an image, then up to `max_wait_seconds` for the rest of a batch.

        Images of disconnected clients are dropped.
        """
        found = [await self._queue.get()]
        with contextlib.suppress(TimeoutError):
            # `get` does not suspend while the queue is not empty, so queued images join
            # the batch even after the timeout.
            async with asyncio.timeout(self._limits.max_wait_seconds):
                while len(found) < self._limits.max_batch:
                    found.append(await self._queue.get())
        return [(image, result) for image, result in found if not result.done()]
