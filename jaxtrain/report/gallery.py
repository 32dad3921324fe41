"""Pictures: mistakes, and doubtful and sure predictions."""

from jaxtrain.report.examples import SURE, UNSURE, WORST, Predictions

# Group, title, and what is in it.
GROUPS = (
    (WORST, "Worst mistakes", "The true class was given the lowest probability."),
    (UNSURE, "Least sure", "Right or wrong: the smallest confidence."),
    (SURE, "Most sure, and right", "The largest confidence."),
)


def looked_at(found: Predictions) -> str:
    """Return which images were predicted, and how many of them wrongly."""
    looked, wrong = len(found.label), int((~found.right).sum())
    if looked < found.num_split:
        which = f"{looked:,} of the {found.num_split:,} images of the {found.split}"
        which = f"Looked at: {which} split, drawn at random"
    else:
        which = f"Looked at: all {looked:,} images of the {found.split} split"
    return f"{which}, with the model of step {found.step:,}: {wrong:,} wrong."
