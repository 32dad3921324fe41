"""Commands that predict memory, speed and scaling of a run: plan, scale, find-batch."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="plan",
    subject="data and planning",
    commands={
        "find-batch": "jaxtrain.plugins.plan.find_batch_command",
        "scale": "jaxtrain.plugins.plan.scale_command",
        "plan": "jaxtrain.plugins.plan.plan_command",
    },
    hints={
        "memory of a step": "{program} plan shows the memory of each",
        "memory": "{program} plan shows the memory of a config, {program} find-batch "
        "the largest batch that fits",
    },
)
