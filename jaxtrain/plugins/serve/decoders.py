"""Decoding of images in worker processes, to contain malicious files.

Decoders are C libraries that cannot be interrupted in a thread, and Pillow parses
metadata with the GIL held. A process can be killed, and has a CPU-time limit per image.
"""

import asyncio
import contextlib
import math
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from queue import SimpleQueue

import numpy as np

from jaxtrain.data.files import UnreadableError

# Bytes of an image file -> pixels, uint8. Picklable, to be sent to the processes.
Decode = Callable[[bytes], np.ndarray]

# First byte of a worker's response: pixels, or an error message.
PIXELS, REASON = b"p", b"r"
MAX_REASON_BYTES = 2**16
# Signals that decoders block, as they may be sent to the entire process group: the
# server still needs its decoders for pending requests, and ends the decoders itself.
LEFT_TO_THE_SERVER = (signal.SIGINT, signal.SIGTERM)
# Not forked: the server has JAX threads.
_spawn = multiprocessing.get_context("spawn")


class DecoderPool:
    """Pool of `num` processes that decode images.

    Args:
      decode: Function of a file's bytes; raises UnreadableError for a bad file.
      shape: Shape of the uint8 array that `decode` returns.
      cpu_seconds: CPU time limit per file in seconds, after which the process ends.
      num: Number of processes.
    """

    def __init__(
        self, decode: Decode, shape: tuple[int, ...], cpu_seconds: float, num: int
    ):
        self._decode, self._shape = decode, shape
        self._cpu_seconds, self._num = cpu_seconds, num

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Context manager: run the processes, and cancel pending work at the end."""
        self._threads = ThreadPoolExecutor(self._num, "decode")
        self._idle = SimpleQueue[_Decoder]()
        most_bytes = max(math.prod(self._shape), MAX_REASON_BYTES) + 1
        decoders = [
            _Decoder(self._decode, self._cpu_seconds, most_bytes)
            for _ in range(self._num)
        ]
        for decoder in decoders:
            self._idle.put(decoder)
        try:
            yield
        finally:
            for decoder in decoders:
                decoder.close()
            self._threads.shutdown(cancel_futures=True)

    async def decode(self, data: bytes) -> np.ndarray:
        """Decode an image file to an array, uint8 of the pool's shape.

        Raises:
          UnreadableError: The file is not an image, exceeds the CPU time limit, or
            crashes the decoding process.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._decode_file, data)

    def _decode_file(self, data: bytes) -> np.ndarray:
        decoder = self._idle.get()
        try:
            response = decoder.request(data)
        finally:
            self._idle.put(decoder)
        if response[:1] != PIXELS:
            raise UnreadableError(response[1:].decode("utf-8", "replace"))
        # Raw bytes: a compromised decoder cannot send a pickle.
        return np.frombuffer(response, np.uint8, offset=1).reshape(self._shape)


class _Decoder:
    """A decoding process, restarted when it ends."""

    def __init__(self, decode: Decode, cpu_seconds: float, most_bytes: int):
        self._decode, self._cpu_seconds = decode, cpu_seconds
        self._most_bytes, self._closed = most_bytes, False
        self._changing = threading.Lock()
        self._start()

    def request(self, data: bytes) -> bytes:
        """Decode a file in the process.

        Returns:
          `PIXELS` and the bytes of the array, or `REASON` and an error message.
        """
        try:
            self._connection.send_bytes(data)
            return self._connection.recv_bytes(self._most_bytes)
        except (EOFError, OSError):
            with self._changing:
                reason = self._end()
                if not self._closed:
                    self._start()
        return REASON + reason.encode()

    def close(self) -> None:
        """Kill the process."""
        with self._changing:
            self._closed = True
            # Unblocks a thread that waits for a response.
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        self._connection, theirs = _spawn.Pipe()
        self._process = _spawn.Process(
            target=_work,
            args=(theirs, self._decode, self._cpu_seconds),
            name="decoder",
            daemon=True,
        )
        # Start the resource tracker first, because starting it unblocks signals.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_THE_SERVER)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def _end(self) -> str:
        """Kill and join the process; return an error message for its exit code."""
        self._connection.close()
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        if code == -signal.SIGPROF:
            seconds = f"{self._cpu_seconds:g} seconds"
            return f"decoding takes more than {seconds} of CPU time"
        return f"the decoder exited with code {code}"


def _work(connection: Connection, decode: Decode, cpu_seconds: float) -> None:
    """Decode files until the connection closes."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            data = connection.recv_bytes()
            # SIGPROF kills the process, even while C code of a library runs.
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            try:
                response = PIXELS + decode(data).tobytes()
            except UnreadableError as error:
                response = REASON + str(error).encode()[:MAX_REASON_BYTES]
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send_bytes(response)
