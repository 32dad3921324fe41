"""Listing of the models, with costs and published results, as text and as JSON."""

from typing import Any, NamedTuple

from jaxtrain.errors import UserError, nearest
from jaxtrain.invocation import command
from jaxtrain.plugin import resolve
from jaxtrain.zoo import counted
from jaxtrain.zoo.counted import Counted
from jaxtrain.zoo.published import PUBLISHED, Published, Result

MIB = 2**20
# Placeholder for unknown values.
NONE = "-"
HEAD = ("model", "image", "parameters", "GFLOPs", "step MiB", "published", "weights")
WIDTHS = (19, 9, 11, 8, 9, 10, 18)


class ListedModel(NamedTuple):
    """A model in the listing; unknown values are None."""

    name: str
    published: Published | None
    counted: Counted | None


def models() -> list[ListedModel]:
    """List all models of `jaxtrain.models.MODELS`, in the same order."""
    counts = counted.read()
    names = resolve("jaxtrain.models:MODELS")
    return [ListedModel(name, PUBLISHED.get(name), counts.get(name)) for name in names]


def find(name: str) -> ListedModel:
    """Find a model by name."""
    known = {model.name: model for model in models()}
    if name not in known:
        raise UserError(
            f"unknown model {name!r}{nearest(name, known)}; list all models with "
            f"{command('models')}"
        )
    return known[name]


def to_dict(model: ListedModel) -> dict[str, Any]:
    """Convert a model to JSON values."""
    about, counts = model.published, model.counted
    return {
        "name": model.name,
        "image_shape": about and list(about.image_shape),
        "num_outputs": about and about.num_outputs,
        "published": [r._asdict() for r in about.results] if about else [],
        "num_params": counts and counts.num_params,
        "forward_flops": counts and counts.forward_flops,
        "step_bytes": counts and counts.step_bytes,
        "weights": [w._asdict() for w in counts.weights] if counts else [],
    }


def table() -> str:
    """Format a table of all models, grouped by plug-in, at most 100 characters wide."""
    headings = {
        names[0]: plugin.name
        for plugin, names in resolve("jaxtrain.models:MODELS").rows_by_plugin()
    }
    lines = [_line(HEAD)]
    for model in models():
        if model.name in headings:
            lines.append(f"{headings[model.name]}:")
        lines.append(_line(cells(model)))
    return "\n".join(lines)


def _line(row: tuple[str, ...]) -> str:
    return "  ".join(
        f"{cell:<{width}}" if i in (0, 1, 6) else f"{cell:>{width}}"
        for i, (cell, width) in enumerate(zip(row, WIDTHS, strict=True))
    ).rstrip()


def details(model: ListedModel) -> str:
    """Format costs, published results and matching weights of a model as text."""
    _, image, num_params, flops, memory, *_ = cells(model)
    rows = [
        ("model.name", model.name),
        ("image", image),
        ("parameters", num_params),
        ("one image", f"{flops} GFLOPs forward"),
        ("training step", f"{memory} MiB for 32 images in float32"),
    ]
    for result in model.published.results if model.published else ():
        kind = "top-1" if result.top1 is not None else "published"
        rows.append((kind, f"{result.figure}, {result.of}, {result.source}"))
    for weights in model.counted.weights if model.counted else ():
        options = "".join(f", {k} = {v}" for k, v in weights.options.items())
        rows.append(
            ("weights", f"{weights.architecture} of {weights.library}{options}")
        )
    return "\n".join(f"{head:<15}{text}" for head, text in rows)


def cells(model: ListedModel) -> tuple[str, ...]:
    """Table cells of a model, in the order of `HEAD`."""
    about, counts = model.published, model.counted
    image = result = num_params = flops = memory = libraries = NONE
    if about:
        height, width, _ = about.image_shape
        image = f"{height}x{width}"
        result = _result(about.results[0]) if about.results else NONE
    if counts:
        num_params = f"{counts.num_params:,}"
        flops = f"{counts.forward_flops / 1e9:.3f}"
        memory = f"{counts.step_bytes / MIB:,.0f}"
        libraries = ", ".join(dict.fromkeys(w.library for w in counts.weights)) or NONE
    return model.name, image, num_params, flops, memory, result, libraries


def _result(result: Result) -> str:
    if result.top1 is not None:
        return f"{result.top1:.2f}"
    return f"{result.mean_iou:.1f} mIoU"
