"""Metric learning: embeddings evaluated by nearest neighbours."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="embedding",
    subject="tasks",
    tasks={"embedding": "jaxtrain.plugins.embedding.task:Embedding"},
    hints={"data.hold_out": "set task to embedding"},
)
