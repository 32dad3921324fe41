"""Pictures: mistakes, doubtful and sure predictions, and augmented training images."""

from collections.abc import Sequence

from jaxtrain.pages.page import breakable, figure, note, section, text
from jaxtrain.report.examples import SURE, UNSURE, WORST, Examples, Pair, Shown
from jaxtrain.report.numbers import share

TITLES = {
    WORST: ("Worst mistakes", "The true class was given the lowest probability."),
    UNSURE: ("Least sure", "Right or wrong: the smallest confidence."),
    SURE: ("Most sure, and right", "The largest confidence."),
}


def predictions(examples: Examples) -> str:
    """Return the groups of examples with what the model says of them."""
    found = examples.predictions
    if found is None:
        return ""
    looked, wrong = len(found.label), int((~found.right).sum())
    if looked < found.num_split:
        which = f"{looked:,} of the {found.num_split:,} images of the {found.split}"
        which = f"Looked at: {which} split, drawn at random"
    else:
        which = f"Looked at: all {looked:,} images of the {found.split} split"
    which += f", with the model of step {found.step:,}: {wrong:,} wrong."
    which += " A click enlarges a picture."
    parts = []
    for group, (title, told) in TITLES.items():
        shown = examples.shown.get(group, [])
        if shown:
            figures = "".join(map(_figure, shown))
            parts.append(
                f'<h3 style="margin-top:1.1rem">{text(title)}</h3>{note(told)}'
                f'<div class="pictures">{figures}</div>'
            )
        elif group == WORST:
            parts.append(note("No mistake among them."))
    return section("Examples", *parts, note=which)


def _figure(one: Shown) -> str:
    right = one.true == one.predicted
    lines = [
        f"<b>{breakable(one.predicted)}</b> {share(one.confidence)}",
        f'<span class="soft">{breakable(one.name)}</span>',
    ]
    if not right:
        truth = f"is {breakable(one.true)}, {share(one.true_probability)}"
        lines.insert(1, truth)
    kind = "large" if right else "large wrong"
    return figure(one.picture, lines, tiny=one.tiny, kind=kind, zoom=True)


def augmented(pairs: Sequence[Pair]) -> str:
    """Return training images, as stored and as a step has augmented them."""
    drawn = "".join(
        '<div class="pair">'
        + figure(pair.before, [breakable(pair.label)], tiny=pair.tiny)
        + figure(pair.after, ["as trained on"], tiny=pair.tiny)
        + "</div>"
        for pair in pairs
    )
    inner = f'<div class="pictures">{drawn}</div>' if drawn else ""
    told = "Of the first step: as stored, and as the model got them."
    return section("Training images", inner, note=told)
