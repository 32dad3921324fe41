"""Front page of the server: model, classes, and file upload."""

from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.report.pages.templates import render
from jaxtrain.tasks.prediction import AnswerParts

# The list of class names is collapsed if it is longer than this.
NUM_OPEN = 20


def front_page(model: TrainedModel, parts: AnswerParts, noun: str) -> str:
    """Render the front page as HTML without external resources.

    Args:
      model: Model to serve.
      parts: Description of the server's responses.
      noun: Noun for an input, "image" or "sound".
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
