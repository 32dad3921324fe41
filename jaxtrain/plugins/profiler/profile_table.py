"""Console table of a profile."""

from rich.table import Table

from jaxtrain.errors import counted
from jaxtrain.plugins.profiler.step_profile import LayerTime, StepProfile

# Maximum number of printed rows; `profile.json` contains all rows.
MAX_ROWS = 20


def profile_table(profile: StepProfile) -> Table:
    """Build a table of the layers that take the most time."""
    first, last = profile.steps
    table = Table(
        title=f"Steps {first + 1} to {last}: {profile.milliseconds:,.1f} ms each, "
        f"{profile.idle_share:.1%} idle ({profile.device_kind})",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("layer", no_wrap=True)
    table.add_column("pass", no_wrap=True)
    for name in ("ms", "share", "GFLOP/s", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for layer in profile.layers[:MAX_ROWS]:
        table.add_row(*_cells(layer))
    return table


def _cells(layer: LayerTime) -> tuple[str, ...]:
    return (
        layer.layer,
        layer.direction or "",
        f"{layer.milliseconds:.3f}",
        f"{layer.share:.1%}",
        "" if layer.flops is None else f"{layer.flops / 1e9:,.0f}",
        "" if layer.bytes is None else f"{layer.bytes / 1e9:,.1f}",
    )


def describe_files(profile: StepProfile, path: str) -> str:
    """Describe where all rows of a profile and its trace are stored.

    Args:
      profile: Profile of some training steps.
      path: Path of `profile.json`, which contains all rows.
    """
    hidden = profile.layers[MAX_ROWS:]
    rows = f"{path} has all rows"
    if hidden:
        share = sum(layer.share for layer in hidden)
        rows = f"{counted(len(hidden), 'more row')}, {share:.1%} in total: {path}"
    return f"{rows}; the trace: {profile.trace}"
