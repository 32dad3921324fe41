"""Commands for data sets: checks, previews, preparation, packing, and new recipes."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="doctor",
    subject="data and planning",
    # Needed for, in this order: the time estimate of `new`, `data --pack`, the HTML
    # page of `data --check`, and EXIF orientations.
    requires=("plan", "packed", "report", "segmentation"),
    commands={
        "new": "jaxtrain.plugins.doctor.new_command",
        "data": "jaxtrain.plugins.doctor.data_command",
    },
    hints={
        "reading files": "packed images ({program} data --pack) are read faster",
        "opening files": "packed images ({program} data --pack) open faster than many "
        "image files",
        "unprepared": "Prepare the data set with\n  {program} data --prepare {words}\n"
        "which requires the extra: {extra}",
    },
)
