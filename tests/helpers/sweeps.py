"""What a sweep has left in its folder."""

from pathlib import Path

from jaxtrain.records.sweep_file import SweepRecord, read_sweep


def read(folder: Path) -> SweepRecord:
    """Return the record of the sweep in `folder / "sweep"`, which is there."""
    record = read_sweep(folder / "sweep")
    assert record is not None
    return record
