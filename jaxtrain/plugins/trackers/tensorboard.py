"""Metric writer for TensorBoard event files.

The protobuf classes are tensorboardX's, but its writer is not used: the writer's thread
ends when the disk is full, and later writes block forever.
"""

import socket
import struct
import time
from typing import Any, Protocol, runtime_checkable

import numpy as np
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import image, scalar

from jaxtrain import links
from jaxtrain.config import LoggingConfig
from jaxtrain.records.folder_lock import cannot_write
from jaxtrain.records.workdir import TENSORBOARD
from jaxtrain.records.writer import (
    AppendedFile,
    ConfiguredWriter,
    LoggedRun,
    scalars_by_split,
)
from jaxtrain.tasks.base import Values

# Protobuf creates these classes at run time, so type checkers do not know them.
Event: Any = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
SessionLog: Any = event_pb2.SessionLog  # pyright: ignore[reportAttributeAccessIssue]


@runtime_checkable
class DrawsValues(Protocol):
    """Protocol of tasks that draw images of evaluation metrics."""

    def pictures(self, values: Values) -> dict[str, np.ndarray]:
        """Draw the metrics of an evaluation: name -> image, uint8 (H, W, 3)."""
        ...


class TensorBoardWriter(ConfiguredWriter):
    """Writer of the scalars in each record, and of the images that the task draws."""

    def __init__(self, run: LoggedRun):
        self._task = run.task
        folder = run.workdir / TENSORBOARD
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        try:
            links.check_inside(folder, run.workdir)
            folder.mkdir(exist_ok=True)
            self._file = AppendedFile(folder / name)
        except OSError as error:
            raise cannot_write(run.workdir, error) from None
        self._write(file_version="brain.Event:2")
        # A resumed run may repeat steps. A START event makes TensorBoard hide the
        # records of these steps in older event files.
        start = SessionLog(status=SessionLog.START)
        self._write(step=run.step + 1, session_log=start)

    @classmethod
    def enabled(cls, config: LoggingConfig) -> bool:
        return config.tensorboard

    def write(self, kind: str, step: int, values: Values) -> None:
        for name, value in scalars_by_split(kind, values).items():
            self._write(step=step, summary=scalar(name, value))
        if kind == "eval" and isinstance(self._task, DrawsValues):
            for name, picture in self._task.pictures(values).items():
                drawn = image(f"{values['split']}/{name}", picture, dataformats="HWC")
                self._write(step=step, summary=drawn)

    def close(self) -> None:
        self._file.close()

    def _write(self, **fields: Any) -> None:
        """Write an event as a TFRecord: length and data, each with a checksum."""
        data = Event(wall_time=time.time(), **fields).SerializeToString()
        size = struct.pack("<Q", len(data))
        sums = (struct.pack("<I", masked_crc32c(part)) for part in (size, data))
        self._file.write(size + next(sums) + data + next(sums))
