"""Packed data sets: shards with random access and checksums, from any source."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="packed",
    subject="data and planning",
    sources={"packed:DIR": "jaxtrain.plugins.packed.store:open_packed"},
    index_files={"index.json": "packed"},
)
