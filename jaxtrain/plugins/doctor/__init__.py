"""Data sets before a run: findings, previews, preparing, packing, and new recipes."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="doctor",
    # A new recipe says how long it will train; `data --pack` packs.
    requires=("plan", "packed"),
    commands={
        "new": "jaxtrain.plugins.doctor.new_command",
        "data": "jaxtrain.plugins.doctor.data_command",
    },
)
