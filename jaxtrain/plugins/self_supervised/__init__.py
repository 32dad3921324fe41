"""Features from images without labels: SimCLR and BYOL, by two views of each image."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="self_supervised",
    subject="tasks",
    requires=("embedding",),
    tasks={"self_supervised": "jaxtrain.plugins.self_supervised.task:SelfSupervised"},
)
