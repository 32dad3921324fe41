"""What a run has left in its folder, and whether two runs are the same."""

import json
from pathlib import Path
from typing import Any

from jaxtrain.records.writer import SYSTEM


def read_lines(workdir: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Read metrics.jsonl without the times, which differ from run to run."""
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    unlike = {"time", "wall_seconds", "examples_per_second", *SYSTEM}
    return [
        {k: v for k, v in line.items() if k not in unlike}
        for line in lines
        if kind in (None, line["kind"])
    ]


def read_summary(workdir: Path) -> dict[str, Any]:
    """Read summary.json without its digest and its id, as `train` returns it."""
    summary = json.loads((workdir / "summary.json").read_text())
    del summary["sha256"], summary["run_id"]
    return summary


def arrays(workdir: Path, step: int) -> dict[str, bytes]:
    """Return the bytes of every array file of a checkpoint."""
    state = workdir / "checkpoints" / str(step) / "state"
    return {
        str(p.relative_to(state)): p.read_bytes()
        for p in state.rglob("*")
        if p.is_file() and p.parent != state and p.name != ".zarray"
    }


def assert_same_run(one: Path, other: Path, step: int) -> None:
    """The same evaluation, best, metrics and arrays, to the last bit."""
    a, b = read_summary(one), read_summary(other)
    for name in ("step", "epoch", "eval", "best", "stopped_early", "skipped_steps"):
        assert a[name] == b[name], name
    assert read_lines(one, "train") == read_lines(other, "train")
    assert read_lines(one, "eval") == read_lines(other, "eval")
    assert len(arrays(one, step)) > 20
    assert arrays(one, step) == arrays(other, step)
