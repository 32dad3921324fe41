"""Data sets before a run: findings, previews, preparing, packing, and new recipes."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="doctor",
    subject="data and planning",
    # A new recipe tells its time, `data --pack` packs, `data --check` writes a page and
    # looks at targets that EXIF turns.
    requires=("plan", "packed", "report", "segmentation"),
    commands={
        "new": "jaxtrain.plugins.doctor.new_command",
        "data": "jaxtrain.plugins.doctor.data_command",
    },
    hints={
        "reading files": "packed images ({program} data --pack) are read faster",
        "opening files": "a folder of many images opens faster once it is packed "
        "({program} data --pack)",
        "unprepared": "Prepare it with\n  {program} data --prepare {words}\n"
        "which needs the extra: {extra}",
    },
)
