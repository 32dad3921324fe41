"""Decoding of images in worker processes, as protection against malicious files.

A thread that runs a C library cannot be interrupted, and Pillow holds the GIL while it
parses metadata. A process can be killed, and is killed after a CPU time limit per file.
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

# Picklable function: contents of an image file -> pixels, uint8.
Decode = Callable[[bytes], np.ndarray]

# First byte of a worker's response, before pixels or an error message.
PIXELS, REASON = b"p", b"r"
MAX_REASON_BYTES = 2**16
# Signals that worker processes block: a signal to the entire process group must not end
# workers that the server needs for pending requests. The server kills them at the end.
LEFT_TO_THE_SERVER = (signal.SIGINT, signal.SIGTERM)
# Not "fork", because JAX runs threads in the server.
_spawn = multiprocessing.get_context("spawn")


class DecoderPool:
    """Pool of worker processes that decode files.

    Args:
      decode: Function that decodes the contents of a file, or raises UnreadableError.
      shape: Shape of the uint8 array that `decode` returns.
      cpu_seconds: CPU time limit per file in seconds, at which the process is killed.
      num: Number of processes.
    """

    def __init__(
        self, decode: Decode, shape: tuple[int, ...], cpu_seconds: float, num: int
    ):
        self._decode, self._shape = decode, shape
        self._cpu_seconds, self._num = cpu_seconds, num

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Context manager: run the processes; cancel pending files at the end."""
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
        """Decode the contents of a file in a worker process, to a uint8 array.

        Raises:
          UnreadableError: The file is not an image, exceeds the CPU time limit, or
            crashes the process.
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
        # Responses are raw bytes, so that a compromised worker cannot send a pickle.
        return np.frombuffer(response, np.uint8, offset=1).reshape(self._shape)


class _Decoder:
    """A worker process, which is restarted when it ends."""

    def __init__(self, decode: Decode, cpu_seconds: float, most_bytes: int):
        self._decode, self._cpu_seconds = decode, cpu_seconds
        self._most_bytes, self._closed = most_bytes, False
        self._changing = threading.Lock()
        self._start()

    def request(self, data: bytes) -> bytes:
        """Decode the contents of a file in the process.

        Returns:
          `PIXELS` followed by the bytes of the array, or `REASON` followed by an error
          message.
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
            # This raises EOFError in a thread that waits for a response.
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
        # Start the resource tracker before blocking signals: its start unblocks them.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_THE_SERVER)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def _end(self) -> str:
        """Kill and join the process; return a message that explains its exit code."""
        self._connection.close()
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        if code == -signal.SIGPROF:
            seconds = f"{self._cpu_seconds:g} seconds"
            return f"decoding takes more than {seconds} of CPU time"
        return f"the decoder exited with code {code}"


def _work(connection: Connection, decode: Decode, cpu_seconds: float) -> None:
    """Main function of a worker process: decode files until the connection closes."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            data = connection.recv_bytes()
            # At the limit, SIGPROF kills the process, even inside a C library.
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            try:
                response = PIXELS + decode(data).tobytes()
            except UnreadableError as error:
                response = REASON + str(error).encode()[:MAX_REASON_BYTES]
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send_bytes(response)
