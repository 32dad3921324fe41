"""Packed data: any source as shards that are read at any place, and checked."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="packed",
    subject="data and planning",
    sources={"packed:DIR": "jaxtrain.plugins.packed.store:open_packed"},
    index_files={"index.json": "packed"},
)
