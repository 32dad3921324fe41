"""Processes that decode images, so that a hostile one costs a process and no more.

Decoders are C libraries that cannot be interrupted in a thread, and Pillow reads
metadata while it holds Python's lock. A process can be ended, and is bounded in the CPU
time that an image takes.
"""

import asyncio
import contextlib
import math
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from queue import SimpleQueue

import numpy as np

from jaxtrain.data.files import UnreadableError

# The bytes of an image file -> its pixels, uint8. Pickled by name.
Decode = Callable[[bytes], np.ndarray]

# The first byte of an answer: pixels, or the reason why there are none.
PIXELS, REASON = b"p", b"r"
MAX_REASON_BYTES = 2**16
# Of the process group. The server ends when it has answered, and its decoders then.
LEFT_TO_THE_SERVER = (signal.SIGINT, signal.SIGTERM)
# Not forked: the server has threads of JAX.
_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True, kw_only=True)
class DecoderProgram:
    """What each decoder does.

    Attributes:
      decode: Run on each file; raises UnreadableError for a bad one.
      shape: Of the pixels that it returns, (H, W, C).
      cpu_seconds: CPU time that one file may take; the process ends itself beyond it.
    """

    decode: Decode
    shape: tuple[int, int, int]
    cpu_seconds: float


class DecoderPool:
    """Decodes images in processes of its own, `num` at a time."""

    def __init__(self, program: DecoderProgram, num: int):
        self._program, self._num = program, num

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have the processes while entered; what they decode at the end is given up."""
        self._threads = ThreadPoolExecutor(self._num, "decode")
        self._idle = SimpleQueue[_Decoder]()
        decoders = [_Decoder(self._program) for _ in range(self._num)]
        for decoder in decoders:
            self._idle.put(decoder)
        try:
            yield
        finally:
            for decoder in decoders:
                decoder.close()
            self._threads.shutdown(cancel_futures=True)

    async def decode(self, data: bytes) -> np.ndarray:
        """Return the pixels of an image file.

        Raises:
          UnreadableError: It is no image, or too expensive, or ended its decoder.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._decode, data)

    def _decode(self, data: bytes) -> np.ndarray:
        decoder = self._idle.get()
        try:
            answer = decoder.ask(data)
        finally:
            self._idle.put(decoder)
        if answer[:1] != PIXELS:
            raise UnreadableError(answer[1:].decode("utf-8", "replace"))
        # Raw bytes: a decoder that was taken over has no pickle to send.
        return np.frombuffer(answer, np.uint8, offset=1).reshape(self._program.shape)


class _Decoder:
    """A process, and another one when it has ended."""

    def __init__(self, program: DecoderProgram):
        self._program, self._closed = program, False
        self._changing = threading.Lock()
        self._start()

    def ask(self, data: bytes) -> bytes:
        """Return the answer of the process to a file, which begins with its kind."""
        most = max(math.prod(self._program.shape), MAX_REASON_BYTES) + 1
        try:
            self._connection.send_bytes(data)
            return self._connection.recv_bytes(most)
        except (EOFError, OSError):
            with self._changing:
                reason = self._end()
                if not self._closed:
                    self._start()
        return REASON + reason.encode()

    def close(self) -> None:
        """End the process, whatever it does."""
        with self._changing:
            self._closed = True
            # It is this that lets a thread go on that waits for an answer.
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        self._connection, theirs = _spawn.Pipe()
        self._process = _spawn.Process(
            target=_work, args=(theirs, self._program), name="decoder", daemon=True
        )
        with _blocked(LEFT_TO_THE_SERVER):
            self._process.start()
        theirs.close()

    def _end(self) -> str:
        """Wait for the end of the process, and return what it says of the image."""
        self._connection.close()
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        if code == -signal.SIGPROF:
            seconds = self._program.cpu_seconds
            return f"it takes more than {seconds:g} seconds of CPU time to decode"
        return f"its decoder ended with exit code {code}"


@contextlib.contextmanager
def _blocked(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Start processes that do not get these signals."""
    # It unblocks them when it starts its own process.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, program: DecoderProgram) -> None:
    """Answer files until the server has gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            data = connection.recv_bytes()
            # SIGPROF ends the process, also within a library.
            signal.setitimer(signal.ITIMER_PROF, program.cpu_seconds)
            try:
                answer = PIXELS + program.decode(data).tobytes()
            except UnreadableError as error:
                answer = REASON + str(error).encode()[:MAX_REASON_BYTES]
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send_bytes(answer)
