"""Self-supervised learning from two views of each image: SimCLR and BYOL."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="self_supervised",
    subject="tasks",
    requires=("embedding",),
    tasks={"self_supervised": "jaxtrain.plugins.self_supervised.task:SelfSupervised"},
)
