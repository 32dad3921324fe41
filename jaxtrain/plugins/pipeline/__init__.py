"""Pipeline parallelism: stages of layers on different devices."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="pipeline",
    subject="devices",
    executions={"stages": "jaxtrain.plugins.pipeline.execution:Pipeline"},
)
