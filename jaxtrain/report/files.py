"""What the pages read of a run's JSON files; runs of other versions may lack fields."""

from typing import Any, TypedDict


class BestRecord(TypedDict, total=False):
    """The best evaluation on the validation split."""

    step: int
    epoch: float
    metric: str
    value: float | None


class SummaryFile(TypedDict, total=False):
    """`summary.json`; a number that was not finite is None."""

    step: int
    epoch: float
    eval: dict[str, Any]
    best: BestRecord | None
    stopped_early: bool
    train_seconds: float
    compile_seconds: float
    examples_per_second: float | None
    num_params: int
    device_kind: str
    num_devices: int
    num_processes: int
    class_names: list[str] | None
    pipeline_idle_share: float
    versions: dict[str, str]


class DataFile(TypedDict, total=False):
    """`data.json`."""

    source: str
    num_examples: dict[str, int]
    num_classes: int | None
    class_names: list[str] | None
    digest: str | None


class ModelFile(TypedDict, total=False):
    """`model.json`."""

    image_shape: tuple[int, int, int]
    class_names: list[str] | None
    mean: list[float]
    std: list[float]
