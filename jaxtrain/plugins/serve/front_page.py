"""Page at `/` of the server: the model, its classes, and a place to drop files on."""

from typing import Any

from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.report.pages.templates import render

# Up to so many names are shown unasked.
NUM_OPEN = 20


def front_page(model: TrainedModel, noun: str) -> str:
    """Return the page, which loads nothing from elsewhere.

    Args:
      model: Model that answers.
      noun: "image" or "sound", as the model takes them.
    """
    kind, names = _names(model)
    page = render(
        "plugins/serve/page.html.j2",
        model=model.description.model.name,
        step=model.origin.get("step"),
        kind=kind,
        names=names,
        is_open=len(names) <= NUM_OPEN,
        noun=noun,
        accept="image/*" if noun == "image" else ".wav,.flac",
    )
    return page.decode()


def _names(model: TrainedModel) -> tuple[str, tuple[Any, ...]]:
    """Return the kind of an answer's parts, in one word, and the names of all."""
    if model.finder is not None:
        return "classes of boxes", tuple(model.finder.names)
    if model.readout is not None:
        readout = model.readout
        return "numbers", () if readout.is_vector else tuple(readout.columns)
    kind = "labels" if model.several_labels else "classes"
    return kind, tuple(model.class_names or ())
