"""TensorBoard's event files.

The writer of tensorboardX writes in a thread, which ends for good when a disk is full;
the next records would then wait for it for ever. So only its records are used here, and
written into a file of our own.
"""

import socket
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import image, scalar

from jaxtrain.records.appended import Appended
from jaxtrain.records.workdir import TENSORBOARD
from jaxtrain.records.writer import LoggedRun, MetricWriter, scalars_by_split
from jaxtrain.tasks.base import Values

# protobuf makes the classes at run time.
Event: Any = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
SessionLog: Any = event_pb2.SessionLog  # pyright: ignore[reportAttributeAccessIssue]


class TensorBoardWriter(MetricWriter):
    """Writes the numbers of each record, and the pictures of evaluations."""

    def __init__(self, run: LoggedRun):
        self._file = EventFile(run.workdir / TENSORBOARD, purge_step=run.step + 1)
        self._pictures = run.task.pictures

    def write(self, kind: str, step: int, values: Values) -> None:
        self._file.add(step, scalars_by_split(kind, values))
        if kind == "eval":
            for name, picture in self._pictures(values).items():
                self._file.add_picture(step, f"{values['split']}/{name}", picture)

    def close(self) -> None:
        self._file.close()


class EventFile:
    """A new event file.

    Args:
      folder: Folder of the file, created if it is missing.
      purge_step: First step that TensorBoard hides of older files in the folder.
    """

    def __init__(self, folder: Path, purge_step: int):
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._file = Appended(folder / name)
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._write(Event(wall_time=time.time(), step=purge_step, session_log=start))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Write values of a step, by their names."""
        for name, value in scalars.items():
            self._add(step, scalar(name, value))

    def add_picture(self, step: int, name: str, picture: np.ndarray) -> None:
        """Write a picture of a step, uint8 (H, W, 3)."""
        self._add(step, image(name, picture, dataformats="HWC"))

    def close(self) -> None:
        self._file.close()

    def _add(self, step: int, summary: Any) -> None:
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Any) -> None:
        """Write a TFRecord: the length, the event, and a checksum of each."""
        data = event.SerializeToString()
        size = struct.pack("<Q", len(data))
        sums = (struct.pack("<I", masked_crc32c(part)) for part in (size, data))
        self._file.write(size + next(sums) + data + next(sums))
