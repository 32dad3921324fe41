"""The models, their facts and counts: as text, as JSON, as a page."""

import collections
import textwrap
from typing import Any, NamedTuple

from jaxtrain.config.names import names_of_rows
from jaxtrain.errors import UserError, nearest
from jaxtrain.invocation import command
from jaxtrain.zoo import counted
from jaxtrain.zoo.counted import Counted
from jaxtrain.zoo.published import PUBLISHED, Published, Result

MIB = 2**20
# Where a figure is not known.
NONE = "-"
HEAD = ("model", "image", "parameters", "GFLOPs", "step MiB", "published", "weights")
WIDTHS = (19, 9, 11, 8, 9, 10, 18)

PAGE = """# Models

`python main.py models` prints this table, `python main.py models NAME` all that is known of one,
and `--json` the same for programs. This page is what `python main.py models --markdown` writes.

{table}

- **image**: height and width that a model is made for, and evaluated at. Most take others, too;
  `model.name` and its options: [training](training.md#models).
- **parameters**: trainable ones, for 1,000 classes (10 where the image has 28 or 32 pixels, 21 of
  models of maps), auxiliary heads included.
- **GFLOPs**: of the compiled program that evaluates one image, in 10^9; a multiplication and an
  addition count one each (many tables count both as one), products with the padding nothing.
- **step MiB**: memory of the compiled training step on 32 images, as XLA:CPU plans it: SGD with
  momentum, float32. A GPU takes another amount: [plan](plan.md).
- **published**: the first of the figures below, not measured here: top-1 in percent of ImageNet's
  validation images (CIFAR-10's test images for 32x32); of models of [maps](segmentation-models.md)
  the mean IoU.
- **weights**: libraries whose [weights](fine-tuning.md#pretrained-weights) fit.

`python benchmarks/zoo.py --write` makes the three counts.

## Where the results are published

{sources}
"""  # noqa: E501


class ListedModel(NamedTuple):
    """A row of the listing; what is not known is None."""

    name: str
    published: Published | None
    counted: Counted | None


def models() -> list[ListedModel]:
    """Return all models of `jaxtrain.models.MODELS`, in its order."""
    counts = counted.read()
    names = names_of_rows("jaxtrain.models:MODELS")
    return [ListedModel(name, PUBLISHED.get(name), counts.get(name)) for name in names]


def find(name: str) -> ListedModel:
    """Return the model of a name.

    Raises:
      UserError: there is none.
    """
    known = {model.name: model for model in models()}
    if name not in known:
        raise UserError(
            f"there is no model {name!r}{nearest(name, known)}; {command('models')} "
            "lists all there are"
        )
    return known[name]


def to_dict(model: ListedModel) -> dict[str, Any]:
    """Return a model as JSON values."""
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
    """Return all models as text of up to 100 columns."""
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if i in (0, 1, 6) else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, WIDTHS, strict=True))
        ).rstrip()
        for row in [HEAD, *map(_cells, models())]
    )


def page() -> str:
    """Return all models as Markdown."""
    rows = [HEAD, ("---", "---", *["---:"] * 4, "---"), *map(_cells, models())]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return PAGE.format(table="\n".join(lines), sources="\n".join(_sources()))


def details(model: ListedModel) -> str:
    """Return all that is known of a model as text."""
    _, image, num_params, flops, memory, *_ = _cells(model)
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


def _cells(model: ListedModel) -> tuple[str, ...]:
    """Return a model as the cells of a row under `HEAD`."""
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
    """Return a result as a cell."""
    if result.top1 is not None:
        return f"{result.top1:.2f}"
    return f"{result.mean_iou:.1f} mIoU"


def _sources() -> list[str]:
    """Return a list item for each source, with what it says of which models."""
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for model in models():
        for result in model.published.results if model.published else ():
            figure = f"`{model.name}` {result.figure.partition(' ')[0]}"
            found[result.of, result.source].append(figure)
    items = (f"- [{of}]({at}): {', '.join(told)}" for (of, at), told in found.items())
    return [
        textwrap.fill(item, 99, subsequent_indent="  ", break_on_hyphens=False)
        for item in items
    ]
