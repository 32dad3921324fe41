"""Page at `/` of the server: the model, its classes, and a place to drop files on."""

from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.report.pages.templates import render
from jaxtrain.tasks.prediction import AnswerParts

# Up to so many names are shown unasked.
NUM_OPEN = 20


def front_page(model: TrainedModel, parts: AnswerParts, noun: str) -> str:
    """Return the page, which loads nothing from elsewhere.

    Args:
      model: Model that answers.
      parts: Parts of its answers.
      noun: "image" or "sound", as the model takes them.
    """
    page = render(
        "plugins/serve/page.html.j2",
        model=model.description.model.name,
        step=model.origin.get("step"),
        kind=parts.kind,
        names=parts.names,
        is_open=len(parts.names) <= NUM_OPEN,
        noun=noun,
        accept="image/*" if noun == "image" else ".wav,.flac",
    )
    return page.decode()
