"""Features of many images as a file of NumPy, written row by row."""

from pathlib import Path

import numpy as np


class FeatureFile:
    """A `.npy` file of float32 (N, F); rows are appended.

    It is written as a stream: a mapped file ends the process where a disk is full.

    Args:
      path: of the file.
      shape: of the array in the end.
    """

    def __init__(self, path: Path, shape: tuple[int, int]):
        self._file = path.open("wb")
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, rows: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(rows, "<f4").data)

    def close(self) -> None:
        self._file.close()
